// The API's types under short names. They come from its OpenAPI document (npm run types).
import type { components } from "./schema";

type Schemas = components["schemas"];

/** A user's metric of a job as lists show it. */
export interface MetricSummary {
  last: number | null;
  min: number | null;
  max: number | null;
  step: number | null;
}
export type Job = Schemas["JobView"] & { metrics?: Record<string, MetricSummary> };
export type JobDetail = Schemas["JobDetail"];
export type JobPage = { jobs: Job[]; next_cursor: string | null };
export type Learner = Schemas["LearnerView"];
export type Event = Schemas["EventView"];
export type LogLine = Schemas["LogLine"];
export type LogPage = Schemas["LogPage"];
export type SearchPage = Schemas["SearchPage"];
export type FileEntry = Schemas["FileView"];
export type Profile = Schemas["ProfileView"];
export type ProfileFile = Schemas["ProfileFile"];
export type Problem = Schemas["Problem"];
export type ProviderUrl = Schemas["ProviderUrl"];
export type FieldProblem = Schemas["FieldProblem"];

export const STATES = [
  "QUEUED",
  "PENDING",
  "DOWNLOADING",
  "PROCESSING",
  "STORING",
  "COMPLETED",
  "FAILED",
  "HALTED",
] as const;
export type State = (typeof STATES)[number];

const TERMINAL: readonly string[] = ["COMPLETED", "FAILED", "HALTED"];
export const ended = (job: Pick<Job, "state">) => TERMINAL.includes(job.state);

/** Who is signed in: what GET /session answers. */
export interface Session {
  user: string;
  project: string;
  role: string;
  projects: { name: string; role: string }[];
  admin: boolean;
  expires_at: string;
}
