import { ended, type JobDetail } from "../api/types";
import type { Shown } from "./Panel";

export const shownJob = (job: JobDetail): Shown => ({ id: job.id, name: job.name, live: !ended(job) });
