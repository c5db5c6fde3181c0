// The states of each attempt as a picture: how long the attempt waited, started, downloaded, trained and stored.
import { ended, type Event, type JobDetail } from "../../api/types";
import { clock, span } from "../../ui/format";
import { tone } from "../../ui/StateBadge";
import { useNow } from "../../ui/useNow";
import { attemptRows, length } from "./attempts";

/** How the attempt ended: its outcome, which a retried attempt has, too. */
function Outcome({ job, attempt, end }: { job: JobDetail; attempt: number; end: string | null }) {
  const outcome = job.attempts.find((other) => other.n === attempt)?.outcome;
  const shown = outcome === "SUCCEEDED" ? "COMPLETED" : (outcome ?? end);
  return shown ? <span className={`state tone-${tone(shown)}`}>{shown}</span> : null;
}

export function Timeline({ job, events }: { job: JobDetail; events: readonly Event[] }) {
  const now = useNow(!ended(job));
  const rows = attemptRows(events, now);
  const longest = Math.max(1, ...rows.map(length));
  if (!rows.length) return <p className="muted">The project no longer keeps the events.</p>;
  return (
    <ol className="timeline">
      {rows.map((row) => (
        <li key={row.segments[0]?.from ?? row.attempt}>
          <div className="timeline-head">
            <strong>Attempt {row.attempt}</strong>
            {row.segments[0] && <span className="muted numbers">{clock(row.segments[0].from)}</span>}
            <span className="muted numbers">{span(length(row) / 1000)}</span>
            <Outcome job={job} attempt={row.attempt} end={row.end} />
          </div>
          <div className="timeline-track" aria-hidden="true">
            <div className="timeline-bar" style={{ width: `${Math.max(8, (100 * length(row)) / longest)}%` }}>
              {row.segments.map((segment) => (
                <span
                  key={`${segment.state}${segment.from}`}
                  className={`segment segment-${segment.state.toLowerCase()}${segment.open ? " open" : ""}`}
                  style={{ flexGrow: Math.max(1, segment.to - segment.from) }}
                  title={`${segment.state} ${span((segment.to - segment.from) / 1000)}`}
                />
              ))}
            </div>
          </div>
          <ul className="timeline-legend">
            {row.segments.map((segment) => (
              <li key={`${segment.state}${segment.from}`}>
                <i className={`dot segment-${segment.state.toLowerCase()}`} /> {segment.state}{" "}
                <span className="muted numbers">{span((segment.to - segment.from) / 1000)}</span>
              </li>
            ))}
          </ul>
        </li>
      ))}
    </ol>
  );
}
