// A chart's card: its name and buttons, and the chart once it has come near the window.
import { useQueries } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";

import { ErrorNote } from "../ui/ErrorNote";
import { dateTime, span, value } from "../ui/format";
import { bestMark } from "./best";
import type { Chart } from "./charts";
import type { EpochScale } from "./epochs";
import { goalOf } from "./goal";
import { type Known, type LineKey, toLine } from "./jobLines";
import type { ChartedJob } from "./jobs";
import { phaseOf } from "./phases";
import { Plot } from "./Plot";
import { type Answer, bucketsQuery, type Kind } from "./queries";
import { type Axis, type ChartSearch, NO_ZOOM } from "./search";
import { Turns } from "./turns";

const FIRST = 8; // cards, of which as many may be in sight at first
const LATER = 1000; // ms until the others are completed
const EACH = 16; // ms between two of them
const AROUND = 190; // px, that the head and the legend take on a full screen
const LARGE = 480; // px, of a chart that takes the page's width

const turns = new Turns();
document.addEventListener("scroll", () => turns.scrolled(), { capture: true, passive: true });

interface Props {
  chart: Chart;
  jobs: readonly ChartedJob[];
  kind: Kind;
  axis: Axis;
  search: ChartSearch;
  change: (changes: Partial<ChartSearch>) => void;
  fits: (series: { learner: number; attempt: number }) => boolean;
  lineKey: LineKey;
  origins: ReadonlyMap<string, number>;
  known: readonly Known[];
  scales: ReadonlyMap<string, EpochScale>;
  /** Its place among the pinned charts; null if it is not pinned. */
  place: number | null;
  last: boolean;
  pin: () => void;
  move: (by: -1 | 1) => void;
}

export function Card({ number, ...props }: Props & { number: number }) {
  const [card, seen] = useSeen();
  const [full, setFull] = useState(false);
  const screen = useFullScreen(card);
  const complete = useComplete(number, seen);
  return (
    <section className={screen.on ? "card chart screen" : full ? "card chart full" : "card chart"} ref={card} aria-label={props.chart.title}>
      {complete ? (
        <Content {...props} seen={seen} full={full} setFull={setFull} screen={screen} />
      ) : (
        <div className="chart-head">
          <h2 className="break">{props.chart.title}</h2>
        </div>
      )}
    </section>
  );
}

interface ContentProps extends Props {
  seen: boolean;
  full: boolean;
  setFull: (full: boolean) => void;
  screen: Screen;
}

function Content(props: ContentProps) {
  const { chart, jobs, kind, axis, search, change, fits, lineKey, origins, known, scales, place, last, pin, move } = props;
  const { seen, full, setFull, screen } = props;
  const zoomed = search.from !== undefined && search.to !== undefined;
  const ask = (job: ChartedJob, inRange: boolean, wanted: boolean) => {
    const origin = origins.get(job.id);
    const scale = scales.get(job.id);
    const own = (at: number) => (axis === "elapsed" ? (origin ?? 0) + at * 1000 : axis === "epoch" && scale ? scale.toStep(at) : at);
    const round = (at: number, how: (at: number) => number) => (axis === "epoch" ? how(own(at)) : own(at));
    const range = inRange ? { from: round(search.from ?? 0, Math.floor), to: round(search.to ?? 0, Math.ceil) } : {};
    const has = origin !== undefined && known.some((series) => series.job === job.id && chart.names.includes(series.name));
    const asked = { names: chart.names, kind, x: axis === "step" || axis === "epoch" ? "step" : "time", ...range } as const;
    return bucketsQuery(job.id, asked, job.live && seen && wanted, seen && has && wanted);
  };
  const smooths = zoomed && (search.smooth ?? 0) > 0;
  const answers = useQueries({ queries: jobs.map((job) => ask(job, zoomed, true)) });
  const wholes = useQueries({ queries: jobs.map((job) => ask(job, false, smooths)) });
  const linesOf = (answer: Answer | undefined, at: number) => {
    const job = jobs[at]?.id ?? "";
    const series = (answer?.series ?? []).filter((found) => fits(found) && found.x.length > 0);
    const scale = scales.get(job);
    if (axis === "epoch" && !scale) return [];
    return series
      .map((found) => toLine(found, job, chart, axis, origins.get(job) ?? 0, lineKey))
      .map((line) => (axis === "epoch" && scale ? { ...line, x: line.x.map(scale.toEpoch) } : line));
  };
  const whole = new Map(smooths ? wholes.flatMap((answer, at) => linesOf(answer.data, at)).map((line) => [line.key, line]) : []);
  const lines = answers.flatMap((answer, at) =>
    linesOf(answer.data, at).map((line) => {
      const its = whole.get(line.key);
      return its ? { ...line, whole: its } : line;
    }),
  );
  const goal = kind === "user" ? goalOf(chart.title) : null;
  // Of validation, where it shares the chart: the best value of the training says little.
  const judged = chart.names.filter((name) => phaseOf(name) && !/^train/i.test(phaseOf(name)));
  const names = judged.length && chart.names.length > 1 ? judged : chart.names;
  const best = goal && bestOf(known.filter((series) => names.includes(series.name) && fits(series)), goal);
  const marked = goal && typeof best === "number" ? bestMark(lines.filter((line) => names.includes(line.name ?? "")), goal, best) : null;
  const failed = answers.find((answer) => answer.error && !answer.data)?.error;
  const leftOut = answers.reduce((sum, answer) => sum + (answer.data?.left_out ?? 0), 0);
  const formatX = axis === "elapsed" ? span : value;
  return (
    <>
      <div className="chart-head">
        <h2 className="break">{chart.title}</h2>
        {typeof best === "number" && (
          <span className="muted small nowrap">
            best <strong className="numbers">{chart.format(best)}</strong>
            {marked && ` at ${axis === "time" ? dateTime(marked.x) : `${axis === "elapsed" ? "" : `${axis} `}${formatX(marked.x)}`}`}
          </span>
        )}
        {place !== null && !screen.on && (
          <>
            <button type="button" className="button quiet small" aria-label={`Move ${chart.title} forward`} disabled={place === 0} onClick={() => move(-1)}>
              ←
            </button>
            <button type="button" className="button quiet small" aria-label={`Move ${chart.title} back`} disabled={last} onClick={() => move(1)}>
              →
            </button>
          </>
        )}
        {!screen.on && (
          <button type="button" className="button quiet small" aria-label={`Pin ${chart.title}`} aria-pressed={place !== null} title="Pin" onClick={pin}>
            {place !== null ? "★" : "☆"}
          </button>
        )}
        {!screen.on && (
          <button type="button" className="button quiet small" aria-pressed={full} onClick={() => setFull(!full)}>
            {full ? "Smaller" : "Larger"}
          </button>
        )}
        {screen.can && (
          <button type="button" className="button quiet small" aria-label="Full screen" aria-pressed={screen.on} title="Full screen" onClick={screen.toggle}>
            <svg viewBox="0 0 14 14" width="13" height="13" aria-hidden="true" fill="none" stroke="currentColor" strokeWidth="1.6">
              <path d="M1 5V1h4M9 1h4v4M13 9v4H9M5 13H1V9" />
            </svg>
          </button>
        )}
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
          mark={marked}
          {...(screen.on ? { height: Math.max(LARGE / 2, window.innerHeight - AROUND) } : full ? { height: LARGE } : {})}
          onZoom={(range) => change(range ? { from: tidy(range[0]), to: tidy(range[1]) } : NO_ZOOM)}
          label={`Chart of ${chart.title}: ${lines.map((line) => `${line.label} ${chart.format(line.last.at(-1))}`).join("; ")}`}
        />
      ) : (
        <p className="plot-none muted">{answers.some((answer) => answer.isFetching) || !seen ? "…" : "No point in this range."}</p>
      )}
      {leftOut > 0 && <p className="muted">{leftOut} more lines are left out: choose learners.</p>}
    </>
  );
}

/** Whether a card is to be more than its name: of many cards, those at the top are so at first, the others one by one while the page
 * is at rest. */
function useComplete(number: number, seen: boolean): boolean {
  const [complete, setComplete] = useState(number < FIRST);
  if (seen && !complete) setComplete(true); // and it stays so when it is out of sight again
  useEffect(() => {
    if (complete) return;
    let timer = setTimeout(look, LATER + number * EACH);
    function look() {
      if (turns.atRest()) setComplete(true);
      else timer = setTimeout(look, LATER + number * EACH);
    }
    return () => clearTimeout(timer);
  }, [complete, number]);
  return complete;
}

interface Screen {
  can: boolean;
  on: boolean;
  toggle: () => void;
}

/** Whether the element takes the whole screen. */
function useFullScreen(element: React.RefObject<HTMLElement | null>): Screen {
  const [on, setOn] = useState(false);
  useEffect(() => {
    const turned = () => setOn(document.fullscreenElement !== null && document.fullscreenElement === element.current);
    document.addEventListener("fullscreenchange", turned);
    return () => document.removeEventListener("fullscreenchange", turned);
  }, [element]);
  const toggle = () => void (on ? document.exitFullscreen() : element.current?.requestFullscreen())?.catch(() => {});
  return { can: document.fullscreenEnabled, on, toggle };
}

/** The best value of the series: the smallest or the largest. */
function bestOf(series: readonly Known[], goal: "min" | "max"): number | null {
  const values = series.flatMap((found) => found[goal] ?? []);
  return values.length ? Math[goal](...values) : null;
}

const tidy = (at: number) => Number(at.toPrecision(Math.abs(at) > 1e9 ? 15 : 6));

/** Whether the element is near the window, and has had its turn: charts further down ask for nothing yet. */
function useSeen(): [React.RefObject<HTMLElement | null>, boolean] {
  const element = useRef<HTMLElement>(null);
  const [seen, setSeen] = useState(false);
  useEffect(() => {
    const chart = element.current;
    if (!chart) return;
    const waiting = {
      distance: () => {
        const { top, bottom } = chart.getBoundingClientRect();
        return Math.abs((top + bottom - window.innerHeight) / 2);
      },
      inSight: () => {
        const { top, bottom } = chart.getBoundingClientRect();
        return bottom > 0 && top < window.innerHeight;
      },
      go: () => setSeen(true),
    };
    let leave: (() => void) | undefined;
    const watch = new IntersectionObserver(
      (entries) => {
        leave?.();
        leave = entries.at(-1)?.isIntersecting ? turns.wait(waiting) : undefined;
        if (!leave) setSeen(false);
      },
      { rootMargin: "300px" },
    );
    watch.observe(chart);
    return () => {
      watch.disconnect();
      leave?.();
    };
  }, []);
  return [element, seen];
}
