// Following by server-sent events. The API sends a comment when it has sent nothing else for 15 seconds. The browser's
// EventSource does not show comments, so it can't tell a quiet stream from a dead one; a stream that fetch() reads can.
import { useEffect, useRef, useState } from "react";

import { call } from "./client";
import { connection } from "./connection";
import { sseParser } from "./sse";

/** silent: connected, but nothing has come for longer than the API is ever quiet. */
export type StreamPhase = "connecting" | "open" | "silent" | "away" | "ended";
export interface StreamState {
  phase: StreamPhase;
  /** When something came last, in ms since 1970; null before. */
  heardAt: number | null;
}
type Handlers = Record<string, (data: unknown, id: string) => void>;

const AGAIN = 3000; // ms
const SILENT = 20_000; // ms: more than the 15 s after which the API sends a comment
const DEAD = 40_000; // ms: two comments are missing

/**
 * Follow `url(lastId)` until its `end`, with the handlers that `handlers()` gives by event name. `tell` hears each new
 * state. Returns a function that ends it.
 */
export function follow(
  url: (lastId: string | null) => string | undefined,
  handlers: () => Handlers,
  tell: (state: StreamState) => void,
): () => void {
  let reading: AbortController | null = null;
  let again: ReturnType<typeof setTimeout> | undefined;
  let watch: ReturnType<typeof setTimeout> | undefined;
  let lastId: string | null = null;
  let heardAt: number | null = null;
  let phase: StreamPhase | null = null;
  let over = false;

  const become = (next: StreamPhase) => {
    if (phase === next) return;
    phase = next;
    tell({ phase, heardAt });
  };
  const heard = (stream: AbortController) => {
    heardAt = Date.now();
    become("open");
    clearTimeout(watch);
    watch = setTimeout(() => {
      become("silent");
      watch = setTimeout(() => stream.abort(), DEAD - SILENT);
    }, SILENT);
  };

  const read = async (address: string, stream: AbortController) => {
    const init = { headers: { Accept: "text/event-stream" }, cache: "no-store" as const, signal: stream.signal };
    const body = (await call(address, init)).body?.pipeThrough(new TextDecoderStream()).getReader();
    const parse = sseParser();
    heard(stream);
    for (let piece = await body?.read(); piece && !piece.done; piece = await body?.read()) {
      heard(stream);
      for (const event of parse(piece.value)) {
        if (over) return;
        if (event.id) lastId = event.id;
        if (event.name === "end") over = true;
        handlers()[event.name]?.(JSON.parse(event.data), event.id);
      }
      if (over) return;
    }
  };

  const open = async () => {
    const address = url(lastId);
    if (over || address === undefined) return;
    const stream = (reading = new AbortController());
    become("connecting");
    try {
      await read(address, stream);
    } catch {
      // No answer, a refusal or a broken connection. call() has reported it; the stream is opened again below.
    }
    if (reading !== stream) return;
    clearTimeout(watch);
    reading = null;
    if (over) {
      stream.abort();
      become("ended");
      return;
    }
    become("away");
    again = setTimeout(() => void open(), AGAIN);
  };

  void open();
  const unsubscribe = connection.onBack(() => {
    if (reading) return;
    clearTimeout(again);
    void open();
  });
  return () => {
    over = true;
    unsubscribe();
    clearTimeout(again);
    clearTimeout(watch);
    const stream = reading;
    reading = null;
    stream?.abort();
  };
}

const CONNECTING: StreamState = { phase: "connecting", heardAt: null };
const ENDED: StreamState = { phase: "ended", heardAt: null };

/** Follow as above while the component is there, anew when `key` changes. Null: nothing is followed. */
export function useStream(url: ((lastId: string | null) => string) | null, key: string, handlers: Handlers) {
  const [state, setState] = useState<StreamState>(CONNECTING);
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

  return wanted ? state : ENDED;
}
