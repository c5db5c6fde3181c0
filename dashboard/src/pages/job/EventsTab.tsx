import { getRouteApi } from "@tanstack/react-router";
import { useState } from "react";

import { plural } from "../../ui/format";
import { Deliveries } from "./Deliveries";
import { EventList } from "./EventList";
import { useLive } from "./live";

const route = getRouteApi("/inside/jobs/$jobId");

export function EventsTab() {
  const { jobId } = route.useParams();
  const { events, stream } = useLive();
  const [text, setText] = useState("");
  const wanted = text.toLowerCase();
  const shown = events.filter((event) => `${event.kind} ${event.state ?? ""} ${event.message}`.toLowerCase().includes(wanted));
  return (
    <div className="stack">
      <section className="card" aria-label="Events">
        <div className="row spread">
          <input
            className="input"
            type="search"
            data-search
            aria-label="Search in the events"
            placeholder="Search  ( / )"
            value={text}
            onChange={(event) => setText(event.target.value)}
          />
          <span className="muted" role="status">
            {plural(shown.length, "event")}
            {stream === "open" ? ", live" : stream === "away" ? ", reconnecting …" : ""}
          </span>
        </div>
        <EventList events={shown} />
      </section>
      <Deliveries jobId={jobId} />
    </div>
  );
}
