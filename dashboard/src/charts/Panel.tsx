// Charts of one or several jobs, with the choices about them.
import { useQueries } from "@tanstack/react-query";
import { type ReactNode, useEffect, useMemo, useRef, useState } from "react";

import { ErrorNote } from "../ui/ErrorNote";
import { span, value } from "../ui/format";
import { Loading } from "../ui/Loading";
import { type Chart, chartsOf } from "./charts";
import { Controls } from "./Controls";
import { goalOf, grouped } from "./goal";
import { type Known, type LineKey, makeKey, originsOf, toLine } from "./jobLines";
import type { ChartedJob } from "./jobs";
import { Plot } from "./Plot";
import { type Answer, bucketsQuery, type Kind, seriesQuery } from "./queries";
import { type Axis, type ChartSearch, NO_ZOOM } from "./search";

const LARGE = 480; // px, of a chart that takes the page's width

interface PanelProps {
  jobs: readonly ChartedJob[];
  kind: Kind;
  search: ChartSearch;
  change: (changes: Partial<ChartSearch>) => void;
  /** When no job has a point. */
  empty: ReactNode;
  /** Further controls. */
  children?: ReactNode;
}

export function Panel({ jobs, kind, search, change, empty, children }: PanelProps) {
  const lists = useQueries({ queries: jobs.map((job) => seriesQuery(job.id, kind, job.live)) });
  const known: Known[] = lists.flatMap((list, at) =>
    (list.data?.series ?? []).map((series) => ({ ...series, job: jobs[at]?.id ?? "" })),
  );
  const notes = [...new Set(lists.flatMap((list) => list.data?.notes ?? []))];
  const error = lists.find((list) => list.error)?.error;
  const axis: Axis = search.x ?? (kind === "user" ? "step" : "time");

  const fits = (series: { learner: number; attempt: number }) =>
    (!search.learner || search.learner.includes(String(series.learner))) &&
    (!search.attempt || search.attempt.includes(String(series.attempt)));
  const wanted = (search.q ?? "").toLowerCase();
  const all = chartsOf(kind, known.filter(fits));
  const charts = all.filter((chart) => chart.title.toLowerCase().includes(wanted));
  const groups = kind === "user" ? grouped(charts) : [{ name: "", charts }];
  const key = makeKey(jobs, known);

  if (!known.length) {
    if (error) return <ErrorNote error={error} />;
    return lists.some((list) => list.isPending) ? <Loading rows={6} /> : <>{empty}</>;
  }
  return (
    <div className="stack">
      <Controls kind={kind} axis={axis} search={search} change={change} known={known}>
        {children}
      </Controls>
      <ErrorNote error={error} />
      {notes.length > 0 && (
        <div className="note warn" role="status">
          {notes.map((note) => (
            <p key={note}>{note}</p>
          ))}
        </div>
      )}
      {charts.length === 0 && <p className="muted">No metric fits what is chosen.</p>}
      {groups.map((group) => (
        <Group key={group.name} name={groups.length > 1 ? group.name || "Others" : null} count={group.charts.length}>
          {group.charts.map((chart) => (
            <ChartCard
              key={chart.title}
              chart={chart}
              jobs={jobs}
              kind={kind}
              axis={axis}
              search={search}
              change={change}
              fits={fits}
              lineKey={key}
              known={known}
            />
          ))}
        </Group>
      ))}
    </div>
  );
}

/** Charts under the name that theirs begin with, which a click on it folds; without a name where there is one group. */
function Group({ name, count, children }: { name: string | null; count: number; children: ReactNode }) {
  if (name === null) return <div className="charts">{children}</div>;
  return (
    <details className="chart-group" open>
      <summary>
        <strong>{name}</strong> <span className="muted numbers">{count}</span>
      </summary>
      <div className="charts">{children}</div>
    </details>
  );
}

interface CardProps {
  chart: Chart;
  jobs: readonly ChartedJob[];
  kind: Kind;
  axis: Axis;
  search: ChartSearch;
  change: (changes: Partial<ChartSearch>) => void;
  fits: (series: { learner: number; attempt: number }) => boolean;
  lineKey: LineKey;
  known: readonly Known[];
}

function ChartCard({ chart, jobs, kind, axis, search, change, fits, lineKey, known }: CardProps) {
  const [card, seen] = useSeen();
  const [full, setFull] = useState(false);
  const origins = useMemo(() => originsOf(known), [known]);
  const zoomed = search.from !== undefined && search.to !== undefined;
  const ask = (job: ChartedJob, inRange: boolean, wanted: boolean) => {
    const origin = origins.get(job.id);
    const ms = (at: number) => (axis === "elapsed" ? (origin ?? 0) + at * 1000 : at);
    const range = inRange ? { from: ms(search.from ?? 0), to: ms(search.to ?? 0) } : {};
    const has = origin !== undefined && known.some((series) => series.job === job.id && chart.names.includes(series.name));
    const asked = { names: chart.names, kind, x: axis === "step" ? "step" : "time", ...range } as const;
    return bucketsQuery(job.id, asked, job.live && seen && wanted, seen && has && wanted);
  };
  const smooths = zoomed && (search.smooth ?? 0) > 0;
  const answers = useQueries({ queries: jobs.map((job) => ask(job, zoomed, true)) });
  const wholes = useQueries({ queries: jobs.map((job) => ask(job, false, smooths)) });
  const linesOf = (answer: Answer | undefined, at: number) => {
    const job = jobs[at]?.id ?? "";
    const series = (answer?.series ?? []).filter((found) => fits(found) && found.x.length > 0);
    return series.map((found) => toLine(found, job, chart, axis, origins.get(job) ?? 0, lineKey));
  };
  const whole = new Map(smooths ? wholes.flatMap((answer, at) => linesOf(answer.data, at)).map((line) => [line.key, line]) : []);
  const lines = answers.flatMap((answer, at) =>
    linesOf(answer.data, at).map((line) => {
      const its = whole.get(line.key);
      return its ? { ...line, whole: its } : line;
    }),
  );
  const goal = kind === "user" ? goalOf(chart.title) : null;
  const best = goal && bestOf(known.filter((series) => chart.names.includes(series.name) && fits(series)), goal);
  const failed = answers.find((answer) => answer.error && !answer.data)?.error;
  const leftOut = answers.reduce((sum, answer) => sum + (answer.data?.left_out ?? 0), 0);
  const formatX = axis === "elapsed" ? span : value;
  return (
    <section className={full ? "card chart full" : "card chart"} ref={card} aria-label={chart.title}>
      <div className="chart-head">
        <h2 className="break">{chart.title}</h2>
        {typeof best === "number" && (
          <span className="muted small nowrap">
            best <strong className="numbers">{chart.format(best)}</strong>
          </span>
        )}
        <button type="button" className="button quiet small" aria-pressed={full} onClick={() => setFull(!full)}>
          {full ? "Smaller" : "Larger"}
        </button>
      </div>
      {failed ? (
        <ErrorNote error={failed} />
      ) : lines.length ? (
        <Plot
          lines={lines}
          axis={axis}
          log={search.log === "1"}
          smooth={search.smooth ?? 0}
          range={zoomed ? [search.from ?? 0, search.to ?? 0] : null}
          format={chart.format}
          binary={chart.binary}
          formatX={formatX}
          {...(full ? { height: LARGE } : {})}
          onZoom={(range) => change(range ? { from: tidy(range[0]), to: tidy(range[1]) } : NO_ZOOM)}
          label={`Chart of ${chart.title}: ${lines.map((line) => `${line.label} ${chart.format(line.last.at(-1))}`).join("; ")}`}
        />
      ) : (
        <p className="plot-none muted">{answers.some((answer) => answer.isFetching) || !seen ? "…" : "No point in this range."}</p>
      )}
      {leftOut > 0 && <p className="muted">{leftOut} more lines are left out: choose learners.</p>}
    </section>
  );
}

/** The best value of the series: the smallest or the largest. */
function bestOf(series: readonly Known[], goal: "min" | "max"): number | null {
  const values = series.flatMap((found) => found[goal] ?? []);
  return values.length ? Math[goal](...values) : null;
}

const tidy = (at: number) => Number(at.toPrecision(Math.abs(at) > 1e9 ? 15 : 6));

/** Whether the element has come near the window: charts further down ask for nothing yet. */
function useSeen(): [React.RefObject<HTMLElement | null>, boolean] {
  const element = useRef<HTMLElement>(null);
  const [seen, setSeen] = useState(false);
  useEffect(() => {
    if (!element.current) return;
    const watch = new IntersectionObserver((entries) => setSeen(entries.some((entry) => entry.isIntersecting)), {
      rootMargin: "300px",
    });
    watch.observe(element.current);
    return () => watch.disconnect();
  }, []);
  return [element, seen];
}
