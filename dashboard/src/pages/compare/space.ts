// The compared jobs in the space of what differs among them: their parameters, and the values of their metrics.
import { color } from "../../charts/lines";
import { goalOf } from "../../charts/goal";
import { type Coordinate, numeric, type Point } from "../../charts/points";

interface Compared {
  id: string;
  name: string;
  params?: Record<string, string>;
  manifest: Record<string, unknown>;
  metrics?: Record<string, { last: number | null; min: number | null; max: number | null }>;
}

const MOST_AXES = 8;

/** The value by which a metric is judged: the smallest of a loss, the largest of a score, else the last. */
function valueOf(job: Compared, metric: string): Coordinate {
  const found = job.metrics && Object.hasOwn(job.metrics, metric) ? job.metrics[metric] : undefined;
  const goal = goalOf(metric);
  return goal === "min" ? found?.min : goal === "max" ? found?.max : found?.last;
}

/** The parameters that a job has logged or that a sweep has given to it, and its environment. */
function parametersOf(job: Compared): Map<string, Coordinate> {
  const given = (job.manifest["parameters"] ?? {}) as Record<string, Coordinate>;
  const env = (job.manifest["env"] ?? {}) as Record<string, string>;
  return new Map<string, Coordinate>([
    ...Object.entries(env).map(([name, text]): [string, Coordinate] => [name, numeric(String(text))]),
    ...Object.entries(given),
    ...Object.entries(job.params ?? {}).map(([name, text]): [string, Coordinate] => [name, numeric(text)]),
  ]);
}

export interface JobSpace {
  parameters: string[];
  metrics: string[];
  names: string[];
  points: Point[];
}

/** Names whose values differ among the jobs, parameters before metrics, and the jobs as points. */
export function spaceOf(jobs: readonly Compared[]): JobSpace {
  const all = jobs.map(parametersOf);
  const differs = (values: readonly Coordinate[]) => new Set(values.filter((at) => at !== undefined)).size > 1;
  const parameters = [...new Set(all.flatMap((found) => [...found.keys()]))]
    .filter((name) => differs(all.map((found) => found.get(name))))
    .sort()
    .slice(0, MOST_AXES);
  const rank = (metric: string) => (goalOf(metric) === null ? 1 : 0);
  const metrics = [...new Set(jobs.flatMap((job) => Object.keys(job.metrics ?? {})))]
    .filter((metric) => differs(jobs.map((job) => valueOf(job, metric))))
    .sort((a, b) => rank(a) - rank(b) || a.localeCompare(b, "en", { numeric: true }))
    .slice(0, MOST_AXES);
  return {
    parameters,
    metrics,
    names: [...parameters, ...metrics],
    points: jobs.map((job, at) => ({
      key: job.id,
      label: job.name,
      at: [...parameters.map((name) => all[at]?.get(name)), ...metrics.map((metric) => valueOf(job, metric))],
      color: color(at),
      good: 1,
      best: false,
    })),
  };
}
