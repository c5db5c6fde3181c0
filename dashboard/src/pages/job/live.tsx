// A job's events, followed once for all tabs of its page; and what they change in what else is shown of it.
import { useQueryClient } from "@tanstack/react-query";
import { createContext, type ReactNode, useContext, useEffect, useRef, useState } from "react";

import { type Stream, useStream } from "../../api/stream";
import type { Event } from "../../api/types";

interface Live {
  events: readonly Event[];
  stream: Stream;
}

const TOGETHER = 300; // ms

const LiveContext = createContext<Live>({ events: [], stream: { state: "connecting", heard: null } });
export const useLive = () => useContext(LiveContext);

export function LiveEvents({ jobId, children }: { jobId: string; children: ReactNode }) {
  const queries = useQueryClient();
  const [events, setEvents] = useState<readonly Event[]>([]);
  // However many events come at once, as on opening the page: the job is asked for once, and nothing is cut off.
  const timer = useRef(0);
  useEffect(() => () => window.clearTimeout(timer.current), []);
  const again = () => {
    timer.current ||= window.setTimeout(() => {
      timer.current = 0;
      void queries.invalidateQueries({ queryKey: ["job", jobId] }, { cancelRefetch: false });
    }, TOGETHER);
  };
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
      void queries.invalidateQueries({ queryKey: ["files", jobId] }, { cancelRefetch: false });
      void queries.invalidateQueries({ queryKey: ["checkpoints", jobId] }, { cancelRefetch: false });
    },
  });
  return <LiveContext value={{ events, stream }}>{children}</LiveContext>;
}
