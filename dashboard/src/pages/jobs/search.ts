// What the jobs list shows is all in its URL.
import { STATES, type State } from "../../api/types";
import { text, texts } from "../../app/urls";

export interface JobsSearch {
  state?: State[];
  label?: string[];
  metric?: string[];
  q?: string;
  /** created_at | name | state | metric:NAME[:last|min|max], with `-` in front for descending. */
  sort?: string;
  /** Columns that are shown; metrics as `metric:NAME`. */
  col?: string[];
}

export const COLUMNS = ["engine", "size", "labels", "user", "created", "duration"] as const;
const DEFAULT_COLUMNS: readonly string[] = ["size", "labels", "user", "created", "duration"];

export function readJobsSearch(search: Record<string, unknown>): JobsSearch {
  const states = texts(search["state"])?.filter((state): state is State => STATES.includes(state as State));
  const found: JobsSearch = {};
  if (states?.length) found.state = states;
  const label = texts(search["label"]);
  if (label) found.label = label;
  const metric = texts(search["metric"]);
  if (metric) found.metric = metric;
  const q = text(search["q"]);
  if (q) found.q = q;
  const sort = text(search["sort"]);
  if (sort) found.sort = sort;
  const col = texts(search["col"]);
  if (col) found.col = col;
  return found;
}

export const columnsOf = (search: JobsSearch): readonly string[] => search.col ?? DEFAULT_COLUMNS;

/** The query of GET /jobs for a page of what `search` shows. */
export function jobsParameters(search: JobsSearch, cursor: string | null): string {
  const params = new URLSearchParams({ limit: "50" });
  search.state?.forEach((state) => params.append("state", state));
  search.label?.forEach((label) => params.append("label", label));
  search.metric?.forEach((condition) => params.append("metric", condition));
  if (search.q) params.set("q", search.q);
  if (search.sort) params.set("sort", search.sort);
  if (cursor) params.set("cursor", cursor);
  return params.toString();
}

/** The sort after a click on a column's head: descending, ascending, none. */
export function turnSort(now: string | undefined, column: string): string | undefined {
  if (now === `-${column}`) return column;
  return now === column ? undefined : `-${column}`;
}
