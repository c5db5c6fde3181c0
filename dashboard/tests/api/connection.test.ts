import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { connection } from "../../src/api/connection";

let ready: boolean | null;

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("window", globalThis);
  vi.stubGlobal("fetch", () => (ready === null ? Promise.reject(new TypeError()) : Promise.resolve({ ok: ready })));
});

afterEach(async () => {
  ready = true;
  await vi.advanceTimersByTimeAsync(2000);
  vi.useRealTimers();
});

test("a lost connection is probed until the API is ready, and then reported once", async () => {
  const [changed, back] = [vi.fn(), vi.fn()];
  const stops = [connection.subscribe(changed), connection.onBack(back)];
  ready = null;
  connection.lost();
  connection.lost();
  expect(connection.isAway()).toBe(true);
  expect(changed).toHaveBeenCalledTimes(1);
  await vi.advanceTimersByTimeAsync(2000);
  ready = false; // the API answers, but its database is away
  await vi.advanceTimersByTimeAsync(2000);
  expect(connection.isAway()).toBe(true);
  expect(back).not.toHaveBeenCalled();
  ready = true;
  await vi.advanceTimersByTimeAsync(2000);
  expect(connection.isAway()).toBe(false);
  expect(changed).toHaveBeenCalledTimes(2);
  expect(back).toHaveBeenCalledTimes(1);
  stops.forEach((stop) => stop());
});

test("there() resolves at once while the API is ready", async () => {
  ready = true;
  await connection.there();
  expect(connection.isAway()).toBe(false);
});

test("there() waits until the API is ready", async () => {
  ready = false;
  const done = vi.fn();
  void connection.there().then(done);
  await vi.advanceTimersByTimeAsync(1999);
  expect(connection.isAway()).toBe(true);
  expect(done).not.toHaveBeenCalled();
  ready = true;
  await vi.advanceTimersByTimeAsync(1);
  expect(done).toHaveBeenCalledOnce();
});
