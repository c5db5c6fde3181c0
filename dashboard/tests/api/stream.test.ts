import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { call } from "../../src/api/client";
import { connection } from "../../src/api/connection";
import { follow, type StreamPhase } from "../../src/api/stream";

vi.mock("../../src/api/client", () => ({ call: vi.fn() }));

/** An answer of the API that the test writes piece by piece. */
class Stream {
  static opened: Stream[] = [];
  readonly url: string;
  readonly signal: AbortSignal;
  readonly response: Response;
  private readonly writer: WritableStreamDefaultWriter<Uint8Array>;

  constructor(url: string, signal: AbortSignal) {
    this.url = url;
    this.signal = signal;
    const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
    this.writer = writable.getWriter();
    this.writer.closed.catch(() => {});
    signal.addEventListener("abort", () => this.fail());
    this.response = new Response(readable);
    Stream.opened.push(this);
  }

  async write(text: string) {
    await this.writer.write(new TextEncoder().encode(text));
    await vi.advanceTimersByTimeAsync(0);
  }

  say = (event: string, data: unknown, id = "") =>
    this.write(`${id && `id: ${id}\n`}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);

  fail() {
    this.writer.abort(new Error("broken")).catch(() => {});
  }
}

let back: () => void;
let phases: StreamPhase[];
let heardAt: number | null;
let lines: [unknown, string][];

const start = async () => {
  const stop = follow(
    (lastId) => `/logs?after=${lastId ?? ""}`,
    () => ({ line: (data, id) => lines.push([data, id]) }),
    (state) => {
      phases.push(state.phase);
      heardAt = state.heardAt;
    },
  );
  await vi.advanceTimersByTimeAsync(0);
  return stop;
};
const newest = () => Stream.opened.at(-1)!;

beforeEach(() => {
  vi.useFakeTimers();
  vi.mocked(call).mockReset();
  vi.mocked(call).mockImplementation((url, init) => Promise.resolve(new Stream(url as string, init!.signal!).response));
  vi.spyOn(connection, "onBack").mockImplementation((action) => {
    back = action;
    return () => void (back = () => {});
  });
  Stream.opened = [];
  phases = [];
  lines = [];
});
afterEach(() => void vi.useRealTimers());

test("events go to their handlers until the end", async () => {
  await start();
  await newest().say("line", { n: 1 }, "7");
  await newest().say("other", {});
  await newest().say("end", {});
  expect(lines).toEqual([[{ n: 1 }, "7"]]);
  expect(phases).toEqual(["connecting", "open", "ended"]);
  expect(newest().signal.aborted).toBe(true);
  await vi.advanceTimersByTimeAsync(120_000);
  expect(Stream.opened).toHaveLength(1);
});

test("a stream that breaks off goes on after its last event", async () => {
  await start();
  await newest().say("line", { n: 1 }, "7");
  await newest().say("line", { n: 2 });
  newest().fail();
  await vi.advanceTimersByTimeAsync(3000);
  expect(Stream.opened.map((stream) => stream.url)).toEqual(["/logs?after=", "/logs?after=7"]);
  expect(phases).toEqual(["connecting", "open", "away", "connecting", "open"]);
});

test("a refused stream is asked for again", async () => {
  vi.mocked(call).mockRejectedValueOnce(new Error("no session"));
  await start();
  expect(phases).toEqual(["connecting", "away"]);
  await vi.advanceTimersByTimeAsync(3000);
  expect(phases).toEqual(["connecting", "away", "connecting", "open"]);
});

test("a comment of the API shows that a quiet stream is alive", async () => {
  await start();
  for (let beat = 0; beat < 5; beat += 1) {
    await vi.advanceTimersByTimeAsync(15_000);
    await newest().write(": ping\n\n");
  }
  expect(phases).toEqual(["connecting", "open"]);
});

test("a stream that is silent says so, and is replaced", async () => {
  await start();
  await newest().say("line", { n: 1 }, "7");
  const last = Date.now();
  await vi.advanceTimersByTimeAsync(20_000);
  expect(phases).toEqual(["connecting", "open", "silent"]);
  expect(heardAt).toBe(last);
  await vi.advanceTimersByTimeAsync(20_000);
  expect(newest().signal.aborted).toBe(true);
  await vi.advanceTimersByTimeAsync(3000);
  expect(newest().url).toBe("/logs?after=7");
  expect(phases).toEqual(["connecting", "open", "silent", "away", "connecting", "open"]);
});

test("it goes on at once when the API is back, and only once", async () => {
  await start();
  back();
  expect(Stream.opened).toHaveLength(1);
  newest().fail();
  await vi.advanceTimersByTimeAsync(0);
  back();
  expect(Stream.opened).toHaveLength(2);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(Stream.opened).toHaveLength(2);
});

test("after the stop nothing is opened any more", async () => {
  const stop = await start();
  stop();
  expect(newest().signal.aborted).toBe(true);
  back();
  await vi.advanceTimersByTimeAsync(120_000);
  expect(Stream.opened).toHaveLength(1);
});
