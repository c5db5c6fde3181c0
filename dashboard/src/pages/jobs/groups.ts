// The jobs that are shown, in groups of the same label.
import type { Job } from "../../api/types";

export interface Group {
  /** The label's value; null for the jobs without the label. */
  value: string | null;
  jobs: Job[];
}

/** In the order of their first jobs; the jobs without the label come last. */
export function groupsOf(jobs: readonly Job[], key: string): Group[] {
  const groups = new Map<string | null, Job[]>();
  for (const job of jobs) {
    const value = job.labels[key] ?? null;
    groups.set(value, [...(groups.get(value) ?? []), job]);
  }
  const found = [...groups].map(([value, members]) => ({ value, jobs: members }));
  return [...found.filter((group) => group.value !== null), ...found.filter((group) => group.value === null)];
}

/** The keys by which the shown jobs can be grouped. */
export const groupKeys = (jobs: readonly Job[]) => [...new Set(jobs.flatMap((job) => Object.keys(job.labels)))].sort();
