import { expect, test } from "vitest";

import type { Event } from "../../../src/api/types";
import { attemptRows, length } from "../../../src/pages/job/attempts";

/** Events from `[second, state, attempt]`; a state of null is that of another kind of event. */
const events = (...all: [number, string | null, number?][]) =>
  all.map(
    ([second, state, attempt], at) =>
      ({
        id: at + 1,
        at: new Date(second * 1000).toISOString(),
        kind: state === null ? "warning" : "state",
        state,
        attempt: attempt ?? null,
      }) as Event,
  );
const submitted = { ...events([0, "QUEUED"])[0], kind: "submitted" } as Event;

test("a job without events has no attempts", () => {
  expect(attemptRows([], 0)).toEqual([]);
});

test("each state lasts until the next one; the last lasts until now", () => {
  const [row, ...more] = attemptRows(events([0, "QUEUED"], [2, "PENDING", 1], [5, "PROCESSING", 1]), 9000);
  expect(more).toEqual([]);
  expect(row).toEqual({
    attempt: 1,
    end: null,
    segments: [
      { state: "QUEUED", from: 0, to: 2000, open: false },
      { state: "PENDING", from: 2000, to: 5000, open: false },
      { state: "PROCESSING", from: 5000, to: 9000, open: true },
    ],
  });
});

test("a browser's clock that is behind makes no negative span", () => {
  const [row] = attemptRows(events([60, "QUEUED"]), 1000);
  expect(row && length(row)).toBe(0);
});

test("an attempt ends with its final state, and takes no time after it", () => {
  const [row] = attemptRows(events([0, "QUEUED"], [1, "PROCESSING", 1], [4, "COMPLETED", 1]), 99_000);
  expect(row?.end).toBe("COMPLETED");
  expect(row && length(row)).toBe(4000);
});

test("waiting for a retry belongs to the retry", () => {
  const all = events([0, "QUEUED"], [1, "PROCESSING", 1], [3, "QUEUED", 2], [10, "PROCESSING", 2], [12, "FAILED", 2]);
  const rows = attemptRows(all, 0);
  expect(rows.map((row) => [row.attempt, length(row), row.end])).toEqual([
    [1, 3000, null],
    [2, 9000, "FAILED"],
  ]);
});

test("the submission and the first wait are one attempt", () => {
  const rows = attemptRows([submitted, ...events([0, "QUEUED"], [1, "PROCESSING", 1])], 2000);
  expect(rows).toHaveLength(1);
});

test("events that are no states change nothing", () => {
  const plain = events([0, "QUEUED"], [2, "PROCESSING", 1]);
  const mixed = [...plain.slice(0, 1), ...events([1, null]), ...plain.slice(1), ...events([3, null])];
  expect(attemptRows(mixed, 5000)).toEqual(attemptRows(plain, 5000));
});
