import { beforeEach, expect, test, vi } from "vitest";

import { json } from "../../../src/api/client";
import type { LogLine, LogPage } from "../../../src/api/types";
import { gapRow, LogWindow, type Row, row } from "../../../src/pages/logs/LogWindow";

vi.mock("../../../src/api/client", () => ({ json: vi.fn() }));

const MOST = 6000;
let total: number;
let asked: URLSearchParams[];

const line = (n: number) => ({ n, text: `line ${n}`, learner: 1, attempt: 1, t: n }) as LogLine;
const lines = (from: number, to: number) =>
  Array.from({ length: Math.max(0, to - from) }, (_, at) => line(from + at));

/** The API's pages of a log with `total` lines. */
function page(parameters: URLSearchParams): LogPage {
  const number = (name: string) => Number(parameters.get(name));
  const limit = number("limit");
  let [from, to] = [number("from"), number("from") + limit];
  if (parameters.has("tail")) [from, to] = [total - number("tail"), total];
  if (parameters.has("before")) [from, to] = [number("before") - limit, number("before")];
  from = Math.max(0, from);
  to = Math.min(total, to);
  const found = lines(from, to);
  const first = found[0]?.n ?? null;
  return { lines: found, first, next: to, previous: from > 0 ? from : null, total } as LogPage;
}

beforeEach(() => {
  total = 2000;
  asked = [];
  vi.mocked(json).mockImplementation((path: string) => {
    const parameters = new URL(path, "http://weft.test").searchParams;
    asked.push(parameters);
    return Promise.resolve(page(parameters));
  });
});

const numbers = (log: LogWindow) =>
  log.snapshot().rows.map((row: Row) => ("gap" in row ? `${row.gap.from}–${row.gap.to}` : row.line.n));
const ends = (log: LogWindow) => [numbers(log)[0], numbers(log).at(-1)];

test("the end of a long log: there are lines above, and none below", async () => {
  const log = new LogWindow("job-1", {});
  await log.openEnd();
  expect(ends(log)).toEqual([1500, 1999]);
  expect(log.snapshot()).toMatchObject({ total: 2000, above: true, atEnd: true, next: 2000, opened: null });
});

test("a short log is there as a whole", async () => {
  total = 3;
  const log = new LogWindow("job-1", {});
  await log.openEnd();
  expect(numbers(log)).toEqual([0, 1, 2]);
  expect(log.snapshot()).toMatchObject({ above: false, atEnd: true });
  await log.up();
  await log.down();
  expect(asked).toHaveLength(1);
});

test("an empty log is loaded, too", async () => {
  total = 0;
  const log = new LogWindow("job-1", {});
  await log.openEnd();
  expect(log.snapshot()).toMatchObject({ rows: [], above: false, atEnd: true, loaded: true });
});

test("the filter and the job's id are part of each request", async () => {
  const log = new LogWindow("job/1", { learner: 2, attempt: undefined });
  await log.openEnd();
  expect(vi.mocked(json).mock.calls[0]?.[0]).toMatch(/^\/jobs\/job%2F1\/logs\?/);
  expect(Object.fromEntries(asked[0] ?? [])).toEqual({ learner: "2", tail: "500", limit: "500" });
});

test("a line in the middle comes with lines above and below it", async () => {
  const log = new LogWindow("job-1", {});
  await log.openAt(1000);
  expect(ends(log)).toEqual([750, 1499]);
  expect(log.snapshot()).toMatchObject({ above: true, atEnd: false, next: 1500, opened: 1000 });
  expect([log.has(749), log.has(750), log.has(1499), log.has(1500)]).toEqual([false, true, true, false]);
});

test("the window grows at both ends without gaps or repeated lines", async () => {
  const log = new LogWindow("job-1", {});
  await log.openAt(1000);
  await log.up();
  await log.down();
  await log.up();
  expect(numbers(log)).toEqual(lines(0, 2000).map((line) => line.n));
  expect(log.snapshot()).toMatchObject({ above: false, atEnd: true });
});

test("upwards, the window is cut at its lower end, and goes on from there", async () => {
  total = 20_000;
  const log = new LogWindow("job-1", {});
  await log.openEnd();
  for (let count = 0; count < 12; count += 1) await log.up();
  expect(ends(log)).toEqual([13_500, 19_499]);
  expect(log.snapshot()).toMatchObject({ atEnd: false, next: 19_500 });
  await log.down();
  expect(ends(log)).toEqual([14_000, 19_999]);
  expect(log.snapshot()).toMatchObject({ atEnd: true, above: true });
});

test("downwards, the window is cut at its upper end, and goes on from there", async () => {
  total = 20_000;
  const log = new LogWindow("job-1", {});
  await log.openAt(0);
  for (let count = 0; count < 12; count += 1) await log.down();
  expect(log.snapshot().rows).toHaveLength(MOST);
  expect(ends(log)).toEqual([500, 6499]);
  expect(log.snapshot().above).toBe(true);
  await log.up();
  expect(ends(log)).toEqual([0, 5999]);
});

test("followed lines are appended; lines that are there already are not", async () => {
  total = 10;
  const log = new LogWindow("job-1", {});
  await log.openEnd();
  log.append([8, 9, 10, 11].map((n) => row(line(n))));
  expect(ends(log)).toEqual([0, 11]);
  expect(log.snapshot()).toMatchObject({ next: 12, total: 12 });
  const before = log.snapshot();
  log.append([row(line(11))]);
  expect(log.snapshot()).toBe(before);
});

test("a followed log is cut at its upper end", async () => {
  const log = new LogWindow("job-1", {});
  await log.openEnd();
  log.append(lines(2000, 9000).map(row));
  expect(ends(log)).toEqual([3000, 8999]);
  total = 9000;
  await log.up();
  expect(ends(log)).toEqual([2500, 8499]);
});

test("lines that a slow follower was not sent are a row, and are not in the window", async () => {
  total = 10;
  const log = new LogWindow("job-1", {});
  await log.openEnd();
  log.append([gapRow({ from: 10, to: 99, lines: 90 }), row(line(100))]);
  expect(numbers(log).slice(-3)).toEqual([9, "10–99", 100]);
  expect([log.has(9), log.has(10), log.has(50), log.has(99), log.has(100)]).toEqual([true, false, false, false, true]);
  log.append([gapRow({ from: 101, to: 150, lines: 50 })]);
  expect(log.snapshot()).toMatchObject({ next: 151, total: 151 });
});

test("a jump overtakes a read that has not ended", async () => {
  const log = new LogWindow("job-1", {});
  await log.openEnd();
  let release = () => {};
  vi.mocked(json).mockImplementationOnce(
    (path) => new Promise((done) => (release = () => done(page(new URL(path, "http://weft.test").searchParams)))),
  );
  const slow = log.up();
  const dropped = log.up(); // one read at a time
  await log.openAt(100);
  release();
  await Promise.all([slow, dropped]);
  expect(ends(log)).toEqual([0, 599]);
  expect(log.snapshot()).toMatchObject({ opened: 100, busy: false });
  expect(asked).toHaveLength(3);
});

test("an error is kept until the API is back, and what failed is read again", async () => {
  const log = new LogWindow("job-1", {});
  vi.mocked(json).mockRejectedValueOnce(new Error("away"));
  await log.openAt(100);
  expect(log.snapshot()).toMatchObject({ busy: false, loaded: false, error: new Error("away") });
  log.again(100);
  await vi.waitFor(() => expect(log.snapshot().loaded).toBe(true));
  expect(log.snapshot()).toMatchObject({ error: null, opened: 100 });
});

test("an error of a window that has lines leaves the lines", async () => {
  const log = new LogWindow("job-1", {});
  await log.openEnd();
  vi.mocked(json).mockRejectedValueOnce(new Error("away"));
  await log.up();
  expect(log.snapshot().error).toEqual(new Error("away"));
  log.again(undefined);
  expect(log.snapshot()).toMatchObject({ error: null, loaded: true });
  await log.up();
  expect(ends(log)).toEqual([1000, 1999]);
});

test("the first line from a time on", async () => {
  const log = new LogWindow("job-1", {});
  vi.mocked(json).mockResolvedValueOnce({ first: 42 }).mockResolvedValueOnce({ first: null });
  expect(await log.lineAt("2026-01-31T14:03:00Z")).toBe(42);
  expect(await log.lineAt("2027-01-31T14:03:00Z")).toBeNull();
  expect(vi.mocked(json).mock.calls[0]?.[0]).toContain("at=2026-01-31T14%3A03%3A00Z&limit=1");
});

test("subscribers are called at each change until they unsubscribe", async () => {
  const log = new LogWindow("job-1", {});
  const changed = vi.fn();
  const stop = log.subscribe(changed);
  await log.openEnd();
  expect(changed).toHaveBeenCalledTimes(2); // busy, and done
  stop();
  await log.openEnd();
  expect(changed).toHaveBeenCalledTimes(2);
});
