// Charts of one or several jobs, with the choices about them.
import { useQueries } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";

import { ErrorNote } from "../ui/ErrorNote";
import { Loading } from "../ui/Loading";
import { Card } from "./Card";
import { type Chart, chartsOf } from "./charts";
import { Controls } from "./Controls";
import { type EpochScale, epochScale, isEpoch } from "./epochs";
import { grouped } from "./goal";
import { type Known, makeKey, originsOf } from "./jobLines";
import type { ChartedJob } from "./jobs";
import { movePin, splitPinned, storedPins, storePins, togglePin } from "./pins";
import { bucketsQuery, type Kind, seriesQuery } from "./queries";
import type { Axis, ChartSearch } from "./search";

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
  const [stored, setStored] = useState(storedPins);
  const axis: Axis = search.x ?? (kind === "user" ? "step" : "time");

  const fits = (series: { learner: number; attempt: number }) =>
    (!search.learner || search.learner.includes(String(series.learner))) &&
    (!search.attempt || search.attempt.includes(String(series.attempt)));
  const wanted = (search.q ?? "").toLowerCase();
  const all = chartsOf(kind, known.filter(fits), search.together === "1");
  const charts = all.filter((chart) => chart.title.toLowerCase().includes(wanted));
  const pins = search.pin ?? stored;
  const setPins = (titles: string[]) => {
    storePins(titles);
    setStored(titles);
    change({ pin: titles.length ? titles : undefined });
  };
  const [pinned, others] = splitPinned(charts, pins);
  const groups = kind === "user" ? grouped(others) : [{ name: "", charts: others }];
  const scales = useEpochScales(jobs, known, axis === "epoch");
  const key = makeKey(jobs, known);
  const origins = originsOf(known);

  const shown = (title: string) => charts.some((chart) => chart.title === title);
  const numbers = new Map([...pinned, ...groups.flatMap((group) => group.charts)].map((chart, at) => [chart, at]));
  const card = (chart: Chart, place: number | null) => (
    <Card
      key={chart.title}
      number={numbers.get(chart) ?? 0}
      chart={chart}
      jobs={jobs}
      kind={kind}
      axis={axis}
      search={search}
      change={change}
      fits={fits}
      lineKey={key}
      origins={origins}
      known={known}
      scales={scales}
      place={place}
      last={place === pinned.length - 1}
      pin={() => setPins(togglePin(pins, chart.title))}
      move={(by) => setPins(movePin(pins, chart.title, by, shown))}
    />
  );

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
      {pinned.length > 0 && (
        <Group name="Pinned" count={pinned.length}>
          {pinned.map((chart, at) => card(chart, at))}
        </Group>
      )}
      {groups.map(
        (group) =>
          group.charts.length > 0 && (
            <Group
              key={group.name}
              name={groups.length > 1 || pinned.length ? group.name || "Others" : null}
              count={group.charts.length}
            >
              {group.charts.map((chart) => card(chart, null))}
            </Group>
          ),
      )}
    </div>
  );
}

/** The epochs of each job's steps, once the page's x is the epoch. */
function useEpochScales(jobs: readonly ChartedJob[], known: readonly Known[], wanted: boolean): Map<string, EpochScale> {
  const answers = useQueries({
    queries: jobs.map((job) => {
      const names = [...new Set(known.filter((series) => series.job === job.id && isEpoch(series.name)).map(({ name }) => name))];
      return bucketsQuery(job.id, { names, kind: "user", x: "step" }, job.live, wanted && names.length > 0);
    }),
  });
  const scales = new Map<string, EpochScale>();
  answers.forEach(({ data }, at) => {
    const scale = wanted && data ? epochScale(data.series) : null;
    if (scale) scales.set(jobs[at]?.id ?? "", scale);
  });
  return scales;
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
