// The lines of jobs in a chart: their colours, labels and points.
import type { Chart } from "./charts";
import type { ChartedJob } from "./jobs";
import { type Buckets, color, type Line, type Series } from "./lines";
import type { Axis } from "./search";

/** A series of a job, as the API lists it. */
export interface Known extends Series {
  job: string;
}

/** The colours and labels of lines. */
export interface LineKey {
  /** The place in the list of colours. */
  color: (job: string, learner: number) => number;
  label: (job: string, learner: number, attempt: number) => string;
  /** The job has a later attempt. */
  old: (job: string, learner: number, attempt: number) => boolean;
}

/**
 * The key of these jobs' lines, which is the same in all charts. Each learner has a colour of its own; if there are
 * several jobs, each job has. Earlier attempts are dashed.
 */
export function makeKey(jobs: readonly ChartedJob[], known: readonly Pick<Known, "job" | "learner" | "attempt">[]): LineKey {
  const pairs = [...new Set(known.map((line) => `${line.job} ${line.learner}`))];
  const order = jobs.flatMap((job) =>
    pairs
      .filter((pair) => pair.startsWith(`${job.id} `))
      .sort((a, b) => Number(a.split(" ")[1]) - Number(b.split(" ")[1])),
  );
  const attempts = new Map<string, number>();
  for (const { job, attempt } of known) attempts.set(job, Math.max(attempt, attempts.get(job) ?? 0));
  const twice = new Set(jobs.map((job) => job.name)).size < jobs.length;
  const learners = new Set(known.map((line) => line.learner)).size > 1;
  const retried = new Set(known.map((line) => line.attempt)).size > 1;
  return {
    color: (job, learner) =>
      jobs.length > 1 ? jobs.findIndex((other) => other.id === job) : Math.max(0, order.indexOf(`${job} ${learner}`)),
    old: (job, _, attempt) => attempt < (attempts.get(job) ?? 0),
    label: (job, learner, attempt) => {
      const name = jobs.find((other) => other.id === job)?.name ?? job;
      const parts = [];
      if (jobs.length > 1) parts.push(twice ? `${name} (${job.slice(-4)})` : name);
      if (learners) parts.push(`learner ${learner}`);
      if (retried) parts.push(`attempt ${attempt}`);
      return parts.join(", ") || `learner ${learner}`;
    },
  };
}

/** The time of each job's first point, in ms since 1970: the job's elapsed time begins there. */
export function originsOf(known: readonly Known[]): Map<string, number> {
  const origins = new Map<string, number>();
  for (const { job, first_time: time } of known) origins.set(job, Math.min(time, origins.get(job) ?? Infinity));
  return origins;
}

/** The line of a series in a chart; `origin` is the time, in ms since 1970, at which the job's elapsed time begins. */
export function toLine(
  series: Buckets,
  job: string,
  chart: Chart,
  axis: Axis,
  origin: number,
  key: LineKey,
): Line {
  const part = chart.part(series.name);
  const at = key.color(job, series.learner) * chart.names.length + chart.names.indexOf(series.name);
  return {
    key: `${job} ${series.learner} ${series.attempt} ${series.name}`,
    name: series.name,
    label: [key.label(job, series.learner, series.attempt), part].filter(Boolean).join(", "),
    color: color(at),
    dashed: key.old(job, series.learner, series.attempt),
    x: axis === "elapsed" ? series.x.map((ms) => (ms - origin) / 1000) : series.x,
    min: series.min,
    max: series.max,
    last: series.last,
  };
}
