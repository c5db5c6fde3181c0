// The attempts of a job, read from its events.
import { ended, type Event } from "../../api/types";

/** The time that the attempt spent in a state, in ms since 1970. */
interface Segment {
  state: string;
  from: number;
  to: number;
  /** The attempt is still in this state. */
  open: boolean;
}

export interface AttemptRow {
  attempt: number;
  segments: Segment[];
  /** The state in which the attempt ended; null while it runs. */
  end: string | null;
}

/** A row for each attempt. The time in which the job waits for its next attempt belongs to that next attempt. */
export function attemptRows(events: readonly Event[], now: number): AttemptRow[] {
  const rows: AttemptRow[] = [];
  const states = events.filter((event) => event.kind === "state" || event.kind === "submitted");
  let row: AttemptRow | null = null;
  states.forEach((event, at) => {
    const state = event.state ?? "QUEUED";
    if (row === null || (state === "QUEUED" && row.segments.length > 0 && !sameWait(row, states[at - 1]))) {
      row = { attempt: rows.length + 1, segments: [], end: null };
      rows.push(row);
    }
    if (event.attempt) row.attempt = event.attempt;
    if (ended({ state })) {
      row.end = state;
      return;
    }
    const next = states[at + 1];
    const from = new Date(event.at).getTime();
    row.segments.push({ state, from, to: next ? new Date(next.at).getTime() : Math.max(from, now), open: !next });
  });
  return rows;
}

const sameWait = (row: AttemptRow, before: Event | undefined) =>
  row.segments.length === 1 && before?.kind === "submitted" && (before.state ?? "QUEUED") === "QUEUED";

/** The time that the attempt took, in ms. */
export const length = (row: AttemptRow) => row.segments.reduce((sum, segment) => sum + segment.to - segment.from, 0);
