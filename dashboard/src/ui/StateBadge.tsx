import { ended, type Job } from "../api/types";

const TONES: Record<string, string> = {
  QUEUED: "wait",
  PENDING: "wait",
  DOWNLOADING: "busy",
  PROCESSING: "busy",
  STORING: "busy",
  COMPLETED: "good",
  FAILED: "bad",
  HALTED: "warn",
};
export const tone = (state: string) => TONES[state] ?? "idle";

/** The job's state, with its colour and its name. */
export function StateBadge({ job }: { job: Pick<Job, "state" | "desired"> }) {
  const leaving = !ended(job) && job.desired !== "RUNNING";
  return (
    <span className={`state tone-${tone(job.state)}${ended(job) ? "" : " live"}`}>
      {job.state}
      {leaving ? ` → ${job.desired.toLowerCase()}` : ""}
    </span>
  );
}
