import { expect, test } from "vitest";

import { readTime } from "../../../src/pages/logs/readTime";

const began = new Date("2026-01-31T22:30:40"); // local time, as a user reads it

test.each([
  ["22:45", "2026-01-31T22:45:00"],
  ["22:30:50", "2026-01-31T22:30:50"],
  ["22:30", "2026-01-31T22:30:00"], // less than a minute before the job began: clocks differ
  ["22:29", "2026-02-01T22:29:00"],
  ["0:05", "2026-02-01T00:05:00"],
])("the clock time %s is the first such time after the job began", (text, time) => {
  expect(readTime(text, began)).toEqual(new Date(time));
});

test("a whole date is taken as it is", () => {
  expect(readTime("2026-01-30 14:03", began)).toEqual(new Date("2026-01-30T14:03"));
  expect(readTime("2026-01-30T14:03:00Z", began)).toEqual(new Date("2026-01-30T14:03:00Z"));
});

test("other text is no time", () => {
  for (const text of ["", "soon", "14:3", "14:03:2"]) expect(readTime(text, began)).toBeNull();
});

test("the time at which the job began is left as it is", () => {
  const before = began.getTime();
  readTime("23:00", began);
  expect(began.getTime()).toBe(before);
});
