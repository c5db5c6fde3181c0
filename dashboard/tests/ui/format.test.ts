import { expect, test } from "vitest";

import { ago, dateTime, plural, since, size, span, value } from "../../src/ui/format";

test.each([
  [0, "0 B"],
  [1023, "1023 B"],
  [1024, "1.0 KiB"],
  [1536, "1.5 KiB"],
  [100 * 1024, "100 KiB"],
  [5 * 2 ** 30, "5.0 GiB"],
  [2 ** 60, "1024 PiB"],
])("%d bytes are %s", (bytes, text) => expect(size(bytes)).toBe(text));

test.each([
  [-3, "0.0 s"],
  [0.84, "0.8 s"],
  [59.6, "1 m 00 s"],
  [127, "2 m 07 s"],
  [3600, "1 h 00 m"],
  [3 * 86_400 + 4 * 3600 + 59 * 60, "3 d 04 h"],
])("%d seconds are %s", (seconds, text) => expect(span(seconds)).toBe(text));

test("a span between two times", () => {
  expect(since("2026-01-31T14:00:00Z", "2026-01-31T14:02:07Z")).toBe("2 m 07 s");
});

test.each([
  [30, "just now"],
  [-60, "just now"], // the browser's clock is behind
  [90, "1 min ago"],
  [2 * 3600, "2 h ago"],
  [5 * 86_400, "5 d ago"],
])("%d seconds ago is %s", (seconds, text) => {
  const now = Date.parse("2026-01-31T14:00:00Z");
  expect(ago(new Date(now - seconds * 1000).toISOString(), now)).toBe(text);
});

test.each([
  [null, "–"],
  [undefined, "–"],
  [NaN, "NaN"],
  [Infinity, "Infinity"],
  [0, "0"],
  [0.123456, "0.12346"],
  [12, "12"],
  [123456.7, "123460"],
  [1e6, "1.000e+6"],
  [-0.00001234, "-1.234e-5"],
])("a metric's value of %s is shown as %s", (number, text) => expect(value(number)).toBe(text));

test("one is singular", () => {
  expect([plural(0, "job"), plural(1, "job"), plural(2, "job")]).toEqual(["0 jobs", "1 job", "2 jobs"]);
  expect(plural(2, "entry", "entries")).toBe("2 entries");
});

test.each([0, 1_769_847_309_000, "2026-01-01T00:00:00Z"])("%s is written as toLocaleString() does", (at) =>
  expect(dateTime(at)).toBe(new Date(at).toLocaleString(undefined, { hourCycle: "h23" })));
