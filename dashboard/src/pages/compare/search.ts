import { texts } from "../../app/urls";
import { type ChartSearch, MOST_JOBS, readChartSearch } from "../../charts/search";

export interface CompareSearch extends ChartSearch {
  job?: string[] | undefined;
}

export function readCompareSearch(search: Record<string, unknown>): CompareSearch {
  const found: CompareSearch = readChartSearch({ ...search, with: undefined });
  const job = texts(search["job"]);
  if (job) found.job = [...new Set(job)].slice(0, MOST_JOBS);
  return found;
}
