import { ended, type JobDetail } from "../api/types";

/** A job whose lines the charts show. */
export interface ChartedJob {
  id: string;
  name: string;
  /** The job still runs: its charts are fetched again and again. */
  live: boolean;
}

export const chartedJob = (job: JobDetail): ChartedJob => ({ id: job.id, name: job.name, live: !ended(job) });
