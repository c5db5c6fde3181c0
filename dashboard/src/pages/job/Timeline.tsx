// The states of each attempt as a picture: how long it waited, started, downloaded, trained, stored.
import type { Event, JobDetail } from "../../api/types";
import { ended } from "../../api/types";
import { clock, span } from "../../ui/format";
import { tone, useNow } from "../../ui/parts";

interface Segment {
  state: string;
  from: number;
  to: number;
  open: boolean;
}
interface Row {
  attempt: number;
  segments: Segment[];
  end: string | null;
}

/** What the events say of each attempt. Waiting for the next attempt counts to the next one. */
export function attemptRows(events: readonly Event[], now: number): Row[] {
  const rows: Row[] = [];
  const states = events.filter((one) => one.kind === "state" || one.kind === "submitted");
  let row: Row | null = null;
  states.forEach((event, at) => {
    const state = event.state ?? "QUEUED";
    if (row === null || (state === "QUEUED" && row.segments.length > 0 && !sameWait(row, states[at - 1]))) {
      row = { attempt: rows.length + 1, segments: [], end: null };
      rows.push(row);
    }
    if (event.attempt) row.attempt = event.attempt;
    if (["COMPLETED", "FAILED", "HALTED"].includes(state)) {
      row.end = state;
      return;
    }
    const next = states[at + 1];
    const from = new Date(event.at).getTime();
    row.segments.push({ state, from, to: next ? new Date(next.at).getTime() : Math.max(from, now), open: !next });
  });
  return rows;
}

const sameWait = (row: Row, before: Event | undefined) =>
  row.segments.length === 1 && before?.kind === "submitted" && (before.state ?? "QUEUED") === "QUEUED";

export function Timeline({ job, events }: { job: JobDetail; events: readonly Event[] }) {
  const now = useNow(!ended(job));
  const rows = attemptRows(events, now);
  const longest = Math.max(1, ...rows.map(length));
  if (!rows.length) return <p className="muted">No events yet.</p>;
  return (
    <ol className="timeline">
      {rows.map((row) => (
        <li key={row.segments[0]?.from ?? row.attempt}>
          <div className="timeline-head">
            <strong>Attempt {row.attempt}</strong>
            {row.segments[0] && <span className="muted numbers">{clock(row.segments[0].from)}</span>}
            <span className="muted numbers">{span(length(row) / 1000)}</span>
            {row.end && <span className={`state tone-${tone(row.end)}`}>{row.end}</span>}
          </div>
          <div className="timeline-track" aria-hidden="true">
            <div className="timeline-bar" style={{ width: `${Math.max(8, (100 * length(row)) / longest)}%` }}>
              {row.segments.map((one) => (
                <span
                  key={`${one.state}${one.from}`}
                  className={`segment segment-${one.state.toLowerCase()}${one.open ? " open" : ""}`}
                  style={{ flexGrow: Math.max(1, one.to - one.from) }}
                  title={`${one.state} ${span((one.to - one.from) / 1000)}`}
                />
              ))}
            </div>
          </div>
          <ul className="timeline-legend">
            {row.segments.map((one) => (
              <li key={`${one.state}${one.from}`}>
                <i className={`dot segment-${one.state.toLowerCase()}`} /> {one.state}{" "}
                <span className="muted numbers">{span((one.to - one.from) / 1000)}</span>
              </li>
            ))}
          </ul>
        </li>
      ))}
    </ol>
  );
}

const length = (row: Row) => row.segments.reduce((sum, one) => sum + one.to - one.from, 0);
