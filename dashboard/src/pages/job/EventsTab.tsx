import { getRouteApi } from "@tanstack/react-router";
import { useState } from "react";

import { Following } from "../../ui/Following";
import { plural } from "../../ui/format";
import { Loading } from "../../ui/Loading";
import { Deliveries } from "./Deliveries";
import { EventList } from "./EventList";
import { pending, useLive } from "./live";

const route = getRouteApi("/inside/jobs/$jobId");

export function EventsTab() {
  const { jobId } = route.useParams();
  const live = useLive();
  const { events, stream } = live;
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
            {pending(live) ? "" : plural(shown.length, "event")} <Following stream={stream} />
          </span>
        </div>
        {pending(live) ? <Loading rows={6} /> : <EventList events={shown} />}
      </section>
      <Deliveries jobId={jobId} />
    </div>
  );
}
