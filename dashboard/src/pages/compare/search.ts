import { texts } from "../../app/urls";
import { type ChartSearch, MOST_JOBS, readChartSearch } from "../../charts/search";

export interface CompareSearch extends ChartSearch {
  job?: string[] | undefined;
  /** Also rows in which all jobs are the same. */
  all?: "1" | undefined;
}

export function readCompareSearch(search: Record<string, unknown>): CompareSearch {
  const found: CompareSearch = readChartSearch({ ...search, with: undefined });
  const job = texts(search["job"]);
  if (job) found.job = [...new Set(job)].slice(0, MOST_JOBS);
  if (String(search["all"]) === "1") found.all = "1";
  return found;
}
