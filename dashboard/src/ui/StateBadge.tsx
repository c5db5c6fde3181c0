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
  // Outcomes of attempts, besides those that are states, too.
  LOST: "bad",
  INTERRUPTED: "warn",
  // States of sweeps and of their trials.
  RUNNING: "busy",
  PAUSED: "wait",
  STOPPING: "warn",
  STOPPED: "warn",
  // Of schedules and of their starts.
  ACTIVE: "good",
  DUE: "busy",
  SKIPPED: "warn",
  REFUSED: "bad",
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
