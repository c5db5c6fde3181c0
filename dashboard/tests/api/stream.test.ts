import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { json } from "../../src/api/client";
import { connection } from "../../src/api/connection";
import { follow, type StreamState } from "../../src/api/stream";

vi.mock("../../src/api/client", () => ({ json: vi.fn() }));

/** The browser's EventSource, as far as it is used here: the tests say what the server does. */
class Source extends EventTarget {
  static readonly CLOSED = 2;
  static opened: Source[] = [];
  readyState = 0;
  onopen = () => {};
  onerror = () => {};
  readonly url: string;

  constructor(url: string) {
    super();
    this.url = url;
    Source.opened.push(this);
  }

  close() {
    this.readyState = Source.CLOSED;
  }

  say(event: string, data: unknown, lastEventId = "") {
    this.dispatchEvent(Object.assign(new Event(event), { data: JSON.stringify(data), lastEventId }));
  }

  fail(closed: boolean) {
    if (closed) this.readyState = Source.CLOSED;
    this.onerror();
  }
}

let back: () => void;
let states: StreamState[];
let lines: [unknown, string][];

const start = () =>
  follow(
    (lastId) => `/logs?after=${lastId ?? ""}`,
    () => ({ line: (data, id) => lines.push([data, id]) }),
    (state) => states.push(state),
  );
const newest = () => Source.opened.at(-1)!;

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("EventSource", Source);
  vi.mocked(json).mockRejectedValue(new Error("no session"));
  vi.spyOn(connection, "onBack").mockImplementation((action) => {
    back = action;
    return () => void (back = () => {});
  });
  Source.opened = [];
  states = [];
  lines = [];
});
afterEach(() => void vi.useRealTimers());

test("events go to their handlers until the end", () => {
  start();
  newest().onopen();
  newest().say("line", { n: 1 }, "7");
  newest().say("other", {});
  newest().say("end", {});
  expect(lines).toEqual([[{ n: 1 }, "7"]]);
  expect(states).toEqual(["connecting", "open", "ended"]);
  expect(newest().readyState).toBe(Source.CLOSED);
  newest().fail(true);
  vi.runAllTimers();
  expect(Source.opened).toHaveLength(1);
});

test("the browser restores a connection that broke off by itself", () => {
  start();
  newest().fail(false);
  vi.runAllTimers();
  expect(states).toEqual(["connecting", "away"]);
  expect(Source.opened).toHaveLength(1);
  expect(json).not.toHaveBeenCalled();
});

test("after a refusal it asks for the session, and goes on after the last event", () => {
  start();
  newest().say("line", { n: 1 }, "7");
  newest().say("line", { n: 2 });
  newest().fail(true);
  expect(json).toHaveBeenCalledWith("/me");
  vi.runAllTimers();
  expect(Source.opened.map((source) => source.url)).toEqual(["/logs?after=", "/logs?after=7"]);
  expect(states).toEqual(["connecting", "away", "connecting"]);
});

test("it goes on at once when the API is back, and only once", () => {
  start();
  back();
  expect(Source.opened).toHaveLength(1);
  newest().fail(true);
  back();
  expect(Source.opened).toHaveLength(2);
  vi.runAllTimers();
  expect(Source.opened).toHaveLength(2);
});

test("after the stop nothing is opened any more", () => {
  const stop = start();
  newest().fail(true);
  stop();
  back();
  vi.runAllTimers();
  expect(Source.opened).toHaveLength(1);
  expect(newest().readyState).toBe(Source.CLOSED);
});
