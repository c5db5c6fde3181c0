import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { ApiError, call } from "../../src/api/client";
import { connection } from "../../src/api/connection";
import { follow, SILENCE, type Stream } from "../../src/api/stream";

vi.mock("../../src/api/client", async (original) => ({ ...(await original<object>()), call: vi.fn() }));

/** An answer of the API: the tests say what it sends. */
class Answer {
  readonly url: string;
  readonly signal: AbortSignal;
  private controller!: ReadableStreamDefaultController<Uint8Array>;
  readonly response: Response;

  constructor(url: string, signal: AbortSignal) {
    this.url = url;
    this.signal = signal;
    const body = new ReadableStream<Uint8Array>({ start: (controller) => void (this.controller = controller) });
    signal.addEventListener("abort", () => this.controller.error(new DOMException("aborted", "AbortError")));
    this.response = new Response(body);
  }

  async send(text: string) {
    this.controller.enqueue(new TextEncoder().encode(text));
    await vi.advanceTimersByTimeAsync(0);
  }

  async breakOff() {
    this.controller.error(new TypeError("network error"));
    await vi.advanceTimersByTimeAsync(0);
  }
}

let back: () => void;
let stream: Stream;
let states: Stream["state"][];
let lines: [unknown, string][];
let answers: Answer[];

const newest = () => answers.at(-1)!;
const start = async () => {
  const stop = follow(
    (lastId) => `/logs?after=${lastId ?? ""}`,
    () => ({ line: (data, id) => lines.push([data, id]) }),
    (change) => {
      const after = change(stream);
      if (after.state !== stream.state) states.push(after.state);
      stream = after;
    },
  );
  await vi.advanceTimersByTimeAsync(0);
  return stop;
};

beforeEach(() => {
  vi.useFakeTimers();
  vi.mocked(call).mockImplementation((url, init) => {
    answers.push(new Answer(url as string, init!.signal!));
    return Promise.resolve(newest().response);
  });
  vi.spyOn(connection, "onBack").mockImplementation((action) => {
    back = action;
    return () => void (back = () => {});
  });
  [answers, states, lines] = [[], [], []];
  stream = { state: "connecting", heard: null };
});
afterEach(() => void vi.useRealTimers());

test("events go to their handlers until the end", async () => {
  await start();
  await newest().send('id: 7\nevent: line\ndata: {"n": 1}\n\nevent: other\ndata: {}\n\n');
  await newest().send("event: end\ndata: {}\n\n");
  await newest().breakOff();
  expect(lines).toEqual([[{ n: 1 }, "7"]]);
  expect(states).toEqual(["open", "ended"]);
  await vi.runAllTimersAsync();
  expect(answers).toHaveLength(1);
});

test("a stream that broke off goes on after the last event", async () => {
  await start();
  await newest().send('id: 7\nevent: line\ndata: {"n": 1}\n\nevent: line\ndata: {"n": 2}\n\n');
  await newest().breakOff();
  expect(states).toEqual(["open", "away"]);
  await vi.advanceTimersByTimeAsync(3000);
  expect(answers.map(({ url }) => url)).toEqual(["/logs?after=", "/logs?after=7"]);
  expect(states).toEqual(["open", "away", "open"]);
});

test("a silent stream is dropped; a comment is no silence", async () => {
  await start();
  await vi.advanceTimersByTimeAsync(SILENCE - 1);
  await newest().send(": still here\n\n");
  await vi.advanceTimersByTimeAsync(SILENCE - 1);
  expect(stream).toEqual({ state: "open", heard: Date.now() - SILENCE + 1 });
  await vi.advanceTimersByTimeAsync(1);
  expect(newest().signal.aborted).toBe(true);
  expect(stream.state).toBe("away");
});

test.each([
  [403, "ended", 1],
  [429, "away", 2],
  [503, "away", 2],
])("after a refusal with %i the stream is %s", async (status, state, requests) => {
  vi.mocked(call).mockRejectedValue(new ApiError(status, {}));
  vi.mocked(call).mockClear();
  await start();
  expect(stream.state).toBe(state);
  await vi.advanceTimersByTimeAsync(3000);
  expect(call).toHaveBeenCalledTimes(requests);
});

test("it goes on at once when the API is back, and only once", async () => {
  await start();
  back();
  expect(answers).toHaveLength(1);
  await newest().breakOff();
  back();
  await vi.advanceTimersByTimeAsync(3000);
  expect(answers).toHaveLength(2);
});

test("after the stop nothing is opened any more", async () => {
  const stop = await start();
  stop();
  expect(newest().signal.aborted).toBe(true);
  back();
  await vi.advanceTimersByTimeAsync(30_000);
  expect(answers).toHaveLength(1);
  expect(states).toEqual(["open"]);
});
