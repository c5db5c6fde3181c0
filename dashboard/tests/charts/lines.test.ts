import { expect, test } from "vitest";

import { color, positive, smoothed } from "../../src/charts/lines";

test("without weight, smoothing changes nothing", () => {
  expect(smoothed([1, 5, null, 2], 0)).toEqual([1, 5, null, 2]);
});

test("smoothing is not drawn to zero at its beginning: a constant stays the constant", () => {
  for (const value of smoothed([3, 3, 3, 3], 0.99)) expect(value).toBeCloseTo(3);
});

test("smoothing weighs what came before", () => {
  const [first, second] = smoothed([0, 1], 0.5);
  expect(first).toBe(0);
  expect(second).toBeCloseTo(2 / 3); // (0.25 × 0 + 0.5 × 1) / 0.75
});

test("a gap stays a gap and does not start the average anew", () => {
  const [, gap, after] = smoothed([0, null, 1], 0.5);
  expect(gap).toBeNull();
  expect(after).toBeCloseTo(2 / 3);
});

test("a log scale shows values above 0 only", () => {
  expect(positive([1, 0, -1, null, 1e-9])).toEqual([1, null, null, null, 1e-9]);
});

test("ten lines have ten colours, and then the colours begin anew", () => {
  const first = Array.from({ length: 10 }, (_, at) => color(at));
  expect(new Set(first).size).toBe(10);
  expect(color(10)).toBe(first[0]);
});
