// Following by server-sent events. The browser's EventSource hides the comments by which the API shows that it is still
// there, so the stream is read here: one that is silent for too long is dropped, and opened again where it was.
import { useEffect, useRef, useState } from "react";

import { ApiError, call } from "./client";
import { connection } from "./connection";
import { EventReader } from "./events";

export interface Stream {
  state: "connecting" | "open" | "away" | "ended";
  /** When the API was last heard, in ms since 1970; null before the first time. */
  heard: number | null;
}
type Handlers = Record<string, (data: unknown, id: string) => void>;

const AGAIN = 3000; // ms
const TOO_MANY = 429; // streams: another page may be closed
/** Longer than between two of the API's comments (15 s). */
export const SILENCE = 20_000; // ms

/**
 * Follow `url(lastId)` until its `end`, with the handlers that `handlers()` gives by event name. `update` hears how the
 * stream changes. Returns a function that ends it.
 */
export function follow(
  url: (lastId: string | null) => string | undefined,
  handlers: () => Handlers,
  update: (change: (before: Stream) => Stream) => void,
): () => void {
  let lastId: string | null = null;
  let over = false;
  let again: ReturnType<typeof setTimeout> | undefined;
  let silence: ReturnType<typeof setTimeout> | undefined;
  let current = new AbortController();
  const turn = (state: Stream["state"]) => update((before) => ({ ...before, state }));

  const hear = (abort: AbortController) => {
    clearTimeout(silence);
    silence = setTimeout(() => abort.abort(), SILENCE);
    const now = Date.now();
    // Lines come by the thousand: the time is told once a second.
    const isNews = (before: Stream) => before.state !== "open" || now - (before.heard ?? 0) > 1000;
    update((before) => (isNews(before) ? { state: "open", heard: now } : before));
  };
  const open = async () => {
    const address = url(lastId);
    if (over || address === undefined) return;
    const abort = (current = new AbortController());
    try {
      const response = await call(address, { headers: { Accept: "text/event-stream" }, signal: abort.signal });
      const bytes = response.body?.getReader();
      const reader = new EventReader();
      hear(abort);
      for (let piece = await bytes?.read(); piece && !piece.done; piece = await bytes?.read()) {
        hear(abort);
        for (const event of reader.read(piece.value)) {
          if (event.id) lastId = event.id;
          if (event.name === "end") over = true;
          handlers()[event.name]?.(JSON.parse(event.data), event.id);
        }
      }
    } catch (error) {
      // What the API refuses it will refuse again; a session that has ended leads to signing in.
      if (error instanceof ApiError && error.status < 500 && error.status !== TOO_MANY) over = true;
    }
    clearTimeout(silence);
    if (abort !== current) return;
    if (over) turn("ended");
    else {
      turn("away");
      again = setTimeout(openAgain, AGAIN);
    }
  };
  const openAgain = () => {
    clearTimeout(again);
    again = undefined;
    void open();
  };
  void open();
  const unsubscribe = connection.onBack(() => {
    if (!over && again !== undefined) openAgain();
  });
  return () => {
    over = true;
    unsubscribe();
    clearTimeout(again);
    clearTimeout(silence);
    const last = current;
    current = new AbortController();
    last.abort();
  };
}

/** Follow as above while the component is there, anew when `key` changes. Null: nothing is followed. */
export function useStream(url: ((lastId: string | null) => string) | null, key: string, handlers: Handlers): Stream {
  const [stream, setStream] = useState<Stream>({ state: "connecting", heard: null });
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
      setStream,
    );
  }, [wanted, key]);

  return wanted ? stream : { state: "ended", heard: null };
}
