// A job's events, followed once for all tabs of its page; and what they change in what else is shown of it.
import { useQueryClient } from "@tanstack/react-query";
import { createContext, type ReactNode, useContext, useState } from "react";

import { type StreamState, useStream } from "../../api/stream";
import type { Event } from "../../api/types";

interface Live {
  events: readonly Event[];
  stream: StreamState;
}

const LiveContext = createContext<Live>({ events: [], stream: "connecting" });
export const useLive = () => useContext(LiveContext);

export function LiveEvents({ jobId, children }: { jobId: string; children: ReactNode }) {
  const queries = useQueryClient();
  const [events, setEvents] = useState<readonly Event[]>([]);
  const again = () => void queries.invalidateQueries({ queryKey: ["job", jobId] });
  const stream = useStream((last) => `/api/v1/jobs/${encodeURIComponent(jobId)}/events?after=${last ?? 0}`, jobId, {
    event: (data) => {
      const event = data as Event;
      setEvents((before) => {
        const newest = before.at(-1);
        return newest && newest.id >= event.id ? before : [...before, event];
      });
      if (event.kind === "state" || event.kind === "learner") again();
    },
    end: () => {
      again();
      void queries.invalidateQueries({ queryKey: ["files", jobId] });
      void queries.invalidateQueries({ queryKey: ["checkpoints", jobId] });
    },
  });
  return <LiveContext value={{ events, stream }}>{children}</LiveContext>;
}
