import type { Event } from "../../api/types";
import { clock, dateTime } from "../../ui/format";
import { tone } from "../../ui/StateBadge";

export function EventList({ events, newestFirst = false }: { events: readonly Event[]; newestFirst?: boolean }) {
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
            {event.message}
            {event.user && <span className="muted"> by {event.user}</span>}
          </span>
        </li>
      ))}
    </ol>
  );
}
