import type { Event } from "../../api/types";
import { clock, dateTime } from "../../ui/format";
import { splitReason } from "../../ui/quoted";
import { Output } from "../../ui/Output";
import { tone } from "../../ui/StateBadge";

interface Props {
  events: readonly Event[];
  newestFirst?: boolean;
  /** With the lines of the log that a message quotes. */
  whole?: boolean;
}

export function EventList({ events, newestFirst = false, whole = false }: Props) {
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
            {splitReason(event.message).headline}
            {event.user && <span className="muted"> by {event.user}</span>}
            {whole && <Quoted message={event.message} />}
          </span>
        </li>
      ))}
    </ol>
  );
}

function Quoted({ message }: { message: string }) {
  const { lines } = splitReason(message);
  if (!lines.length) return null;
  return (
    <details>
      <summary>its last lines</summary>
      <Output lines={lines} label="The last lines" />
    </details>
  );
}
