// Following by server-sent events. The browser's EventSource comes back by itself and says where it was
// (Last-Event-ID); it gives up for good when it gets another answer than a stream, and then it is for us to go on.
import { useEffect, useRef, useState } from "react";

import { connection } from "./connection";
import { json } from "./client";

export type StreamState = "connecting" | "open" | "away" | "ended";
type Handlers = Record<string, (data: unknown, id: string) => void>;

const AGAIN = 3000; // ms

/**
 * Follow `url(lastId)` until its `end`, with the handlers that `handlers()` gives by event name. `tell` hears each new
 * state. Returns a function that ends it.
 */
export function follow(
  url: (lastId: string | null) => string | undefined,
  handlers: () => Handlers,
  tell: (state: StreamState) => void,
): () => void {
  let source: EventSource | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let lastId: string | null = null;
  let over = false;

  const open = () => {
    const address = url(lastId);
    if (over || address === undefined) return;
    tell("connecting");
    source = new EventSource(address);
    source.onopen = () => tell("open");
    for (const name of Object.keys(handlers())) {
      source.addEventListener(name, (event) => {
        const message = event as MessageEvent<string>;
        if (message.lastEventId) lastId = message.lastEventId;
        handlers()[name]?.(JSON.parse(message.data), message.lastEventId);
      });
    }
    source.addEventListener("end", () => {
      over = true;
      source?.close();
      tell("ended");
    });
    source.onerror = () => {
      if (over) return;
      tell("away");
      if (source?.readyState !== EventSource.CLOSED) return;
      // An EventSource never says why. Asking shows whether the session or the API is gone, and both are dealt with.
      json("/me").catch(() => {});
      timer = setTimeout(open, AGAIN);
    };
  };
  open();
  const unsubscribe = connection.onBack(() => {
    clearTimeout(timer);
    if (source?.readyState === EventSource.CLOSED) open();
  });
  return () => {
    over = true;
    unsubscribe();
    clearTimeout(timer);
    source?.close();
  };
}

/** Follow as above while the component is there, anew when `key` changes. Null: nothing is followed. */
export function useStream(url: ((lastId: string | null) => string) | null, key: string, handlers: Handlers) {
  const [state, setState] = useState<StreamState>("connecting");
  const latest = useRef({ handlers, url });
  useEffect(() => {
    latest.current = { handlers, url };
  });
  const wanted = url !== null;

  useEffect(() => {
    if (!wanted) return;
    return follow(
      (lastId) => latest.current.url?.(lastId),
      () => latest.current.handlers,
      setState,
    );
  }, [wanted, key]);

  return wanted ? state : "ended";
}
