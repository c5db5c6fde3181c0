// What the jobs list shows is all in its URL.
import { STATES, type State } from "../../api/types";
import { text, texts } from "../../app/urls";

export interface JobsSearch {
  state?: State[];
  label?: string[];
  metric?: string[];
  q?: string;
  user?: string;
  engine?: string;
  /** Submitted since: 24h, 7d, or a time. */
  since?: string;
  /** created_at | name | state | metric:NAME[:last|min|max], with `-` in front for descending. */
  sort?: string;
  /** Columns that are shown; metrics as `metric:NAME`, parameters as `param:NAME`. */
  col?: string[];
}

export const COLUMNS = ["id", "engine", "size", "labels", "user", "created", "duration", "gpu-hours"] as const;
const DEFAULT_COLUMNS: readonly string[] = ["size", "labels", "user", "created", "duration"];

/** The eight states as people ask for them. */
export const GROUPS: readonly (readonly [string, readonly State[]])[] = [
  ["Running", ["DOWNLOADING", "PROCESSING", "STORING"]],
  ["Waiting", ["QUEUED", "PENDING"]],
  ["Done", ["COMPLETED", "HALTED"]],
  ["Failed", ["FAILED"]],
];

/** Without any of these, all jobs are shown. */
export const NO_FILTER = {
  state: undefined,
  label: undefined,
  metric: undefined,
  q: undefined,
  user: undefined,
  engine: undefined,
  since: undefined,
} satisfies Partial<Record<keyof JobsSearch, undefined>>;

export const isFiltered = (search: JobsSearch) =>
  Object.keys(NO_FILTER).some((name) => search[name as keyof JobsSearch] !== undefined);

export function readJobsSearch(search: Record<string, unknown>): JobsSearch {
  const states = texts(search["state"])?.filter((state): state is State => STATES.includes(state as State));
  const found: JobsSearch = {};
  if (states?.length) found.state = states;
  for (const name of ["label", "metric", "col"] as const) {
    const given = texts(search[name]);
    if (given) found[name] = given;
  }
  for (const name of ["q", "user", "engine", "since", "sort"] as const) {
    const given = text(search[name]);
    if (given) found[name] = given;
  }
  return found;
}

export const columnsOf = (search: JobsSearch): readonly string[] => search.col ?? DEFAULT_COLUMNS;

/** The query of GET /jobs for a page of what `search` shows. */
export function jobsParameters(search: JobsSearch, cursor: string | null): string {
  const params = new URLSearchParams({ limit: "50" });
  search.state?.forEach((state) => params.append("state", state));
  search.label?.forEach((label) => params.append("label", label));
  search.metric?.forEach((condition) => params.append("metric", condition));
  for (const column of columnsOf(search)) {
    if (column.startsWith("param:")) params.append("param", column.slice(6));
  }
  for (const name of ["q", "user", "engine", "since", "sort"] as const) {
    const given = search[name];
    if (given) params.set(name, given);
  }
  if (cursor) params.set("cursor", cursor);
  return params.toString();
}

/** The sort after a click on a column's head: descending, ascending, none. */
export function turnSort(now: string | undefined, column: string): string | undefined {
  if (now === `-${column}`) return column;
  return now === column ? undefined : `-${column}`;
}
