// What the jobs list shows is all in its URL.
import { type Job, STATES, type State } from "../../api/types";
import { text, texts } from "../../app/urls";

export interface JobsSearch {
  state?: State[];
  label?: string[];
  metric?: string[];
  /** Parameters and the values that they must have: `lr=0.1`. */
  param?: string[];
  q?: string;
  user?: string;
  engine?: string;
  /** A time or a span until now (`7d`), as the API reads it. */
  since?: string;
  /** created_at | name | state | duration | metric:NAME[:last|min|max], with `-` in front for descending. */
  sort?: string;
  /** Columns that are shown; metrics as `metric:NAME`, parameters as `param:NAME`. */
  col?: string[];
  /** The label by whose values the jobs are grouped. */
  group?: string;
}

export const COLUMNS = ["labels", "user", "engine", "size", "gpu_hours", "created", "duration", "id"] as const;
const DEFAULT_COLUMNS: readonly string[] = ["labels", "user", "created", "duration", "id"];

/** The tabs over the eight states. */
export const TABS: readonly { name: string; states: readonly State[] }[] = [
  { name: "All", states: [] },
  { name: "Running", states: ["DOWNLOADING", "PROCESSING", "STORING"] },
  { name: "Waiting", states: ["QUEUED", "PENDING"] },
  { name: "Done", states: ["COMPLETED", "HALTED"] },
  { name: "Failed", states: ["FAILED"] },
];

/** The tab that shows these states; undefined if none does. */
export const tabOf = (states: readonly State[] = []) =>
  TABS.find((tab) => tab.states.length === states.length && tab.states.every((state) => states.includes(state)));

export function readJobsSearch(search: Record<string, unknown>): JobsSearch {
  const states = texts(search["state"])?.filter((state): state is State => STATES.includes(state as State));
  const found: JobsSearch = {};
  if (states?.length) found.state = [...new Set(states)];
  for (const name of ["label", "metric", "param", "col"] as const) {
    const given = texts(search[name]);
    if (given) found[name] = given;
  }
  for (const name of ["q", "user", "engine", "since", "sort", "group"] as const) {
    const given = text(search[name]);
    if (given) found[name] = given;
  }
  return found;
}

/** The change that shows all jobs again. */
export const NO_FILTER = {
  state: undefined,
  label: undefined,
  metric: undefined,
  param: undefined,
  q: undefined,
  user: undefined,
  engine: undefined,
  since: undefined,
};
export const isFiltered = (search: JobsSearch) =>
  (Object.keys(NO_FILTER) as (keyof typeof NO_FILTER)[]).some((name) => search[name] !== undefined);

export const columnsOf = (search: JobsSearch): readonly string[] => search.col ?? DEFAULT_COLUMNS;

/** The parameters of filters and columns, as the API takes them. */
function shownParameters(search: JobsSearch): string[] {
  const wanted = search.param ?? [];
  const columns = columnsOf(search).flatMap((column) => (column.startsWith("param:") ? [column.slice(6)] : []));
  return [...wanted, ...columns.filter((name) => !wanted.some((filter) => filter.startsWith(`${name}=`)))];
}

/** The query of GET /jobs for the pinned jobs, which stand above all others. */
export function pinnedParameters(search: JobsSearch): string {
  const params = new URLSearchParams({ limit: "50", pinned: "true" });
  shownParameters(search).forEach((name) => params.append("param", name));
  return params.toString();
}

/** The query of GET /jobs for a page of what `search` shows. */
export function jobsParameters(search: JobsSearch, cursor: string | null): string {
  const params = new URLSearchParams({ limit: "50" });
  search.state?.forEach((state) => params.append("state", state));
  search.label?.forEach((label) => params.append("label", label));
  search.metric?.forEach((condition) => params.append("metric", condition));
  for (const name of ["q", "user", "engine", "since", "sort"] as const) {
    const given = search[name];
    if (given) params.set(name, given);
  }
  shownParameters(search).forEach((name) => params.append("param", name));
  if (cursor) params.set("cursor", cursor);
  return params.toString();
}

/** The sort after a click on a column's head: descending, ascending, none. */
export function turnSort(now: string | undefined, column: string): string | undefined {
  if (now === `-${column}`) return column;
  return now === column ? undefined : `-${column}`;
}

const TAIL = 14; // characters

/** A name in two parts, of which the first is cut where there is no room: names often differ at their ends. */
export const cutName = (name: string): [string, string] =>
  name.length <= 2 * TAIL ? [name, ""] : [name.slice(0, -TAIL), name.slice(-TAIL)];

/** GPUs of all learners × the hours that the job has run; null for a job without GPUs or that has not started. */
export function gpuHours(job: Pick<Job, "learners" | "resources" | "started_at" | "ended_at">, now: number): number | null {
  if (!job.resources.gpus || !job.started_at) return null;
  const end = job.ended_at ? new Date(job.ended_at).getTime() : now;
  return (job.learners * job.resources.gpus * Math.max(0, end - new Date(job.started_at).getTime())) / 3_600_000;
}
