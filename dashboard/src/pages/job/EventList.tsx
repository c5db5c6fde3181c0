import type { Event } from "../../api/types";
import { AnsiText } from "../../ui/AnsiText";
import { clock, dateTime } from "../../ui/format";
import { headlineOf } from "../../ui/reason";
import { tone } from "../../ui/StateBadge";
import { readFailure } from "./failure";

interface Props {
  events: readonly Event[];
  newestFirst?: boolean;
  /** Without the log lines that an event may have. */
  short?: boolean;
}

export function EventList({ events, newestFirst = false, short = false }: Props) {
  if (!events.length) return <p className="muted">None yet.</p>;
  const shown = newestFirst ? [...events].reverse() : events;
  return (
    <ol className="events">
      {shown.map((event) => (
        <li key={event.id}>
          <time dateTime={event.at} title={dateTime(event.at)} className="muted numbers">
            {clock(event.at)}
          </time>
          <span className="break">
            {event.state && event.kind === "state" ? (
              <span className={`state tone-${tone(event.state)}`}>{event.state}</span>
            ) : (
              <span className={event.kind === "warning" ? "chip tone-warn" : "chip"}>{event.kind}</span>
            )}{" "}
            {headlineOf(event.message)}
            {event.user && <span className="muted"> by {event.user}</span>}
            {!short && <LogLines message={event.message} />}
          </span>
        </li>
      ))}
    </ol>
  );
}

function LogLines({ message }: { message: string }) {
  const { lines } = readFailure(message);
  if (!lines.length) return null;
  return (
    <pre className="event-lines">
      {lines.map((line, at) => (
        <span key={at}>
          <AnsiText text={line} />
          {"\n"}
        </span>
      ))}
    </pre>
  );
}
