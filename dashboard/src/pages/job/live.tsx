// A job's events, followed once for all tabs of its page; and what they change in what else is shown of it.
import { useQueryClient } from "@tanstack/react-query";
import { createContext, type ReactNode, useCallback, useContext, useEffect, useRef, useState } from "react";

import { type StreamState, useStream } from "../../api/stream";
import type { Event } from "../../api/types";

interface Live {
  events: readonly Event[];
  stream: StreamState;
}

const TOGETHER = 250; // ms in which events are gathered before the job is read again

/** Whether events are still to come: every job has some, unless retention has removed them. */
export const pending = ({ events, stream }: Live) => events.length === 0 && stream.phase !== "ended";

const LiveContext = createContext<Live>({ events: [], stream: { phase: "connecting", heardAt: null } });
export const useLive = () => useContext(LiveContext);

export function LiveEvents({ jobId, children }: { jobId: string; children: ReactNode }) {
  const queries = useQueryClient();
  const [events, setEvents] = useState<readonly Event[]>([]);
  const again = useGathered(() => void queries.invalidateQueries({ queryKey: ["job", jobId] }));
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

/** `action` once for all calls that come within a moment. */
function useGathered(action: () => void): () => void {
  const latest = useRef(action);
  const timer = useRef(0);
  useEffect(() => {
    latest.current = action;
  });
  useEffect(
    () => () => {
      window.clearTimeout(timer.current);
      timer.current = 0;
    },
    [],
  );
  return useCallback(() => {
    timer.current ||= window.setTimeout(() => {
      timer.current = 0;
      latest.current();
    }, TOGETHER);
  }, []);
}
