import { expect, test } from "vitest";

import { numeric, scaleOf } from "../../src/charts/points";

test("an axis is logarithmic where its numbers span magnitudes, and has other values by name", () => {
  const places = (...all: (number | string)[]) => all.map((at) => Number(scaleOf(all).place(at)?.toFixed(3)));
  expect(places(1e-4, 1e-2, 1)).toEqual([0, 0.5, 1]);
  expect(places(2, 3, 4)).toEqual([0, 0.5, 1]);
  expect(places("b", "a", "b")).toEqual([1, 0, 1]);
  expect(places(3)).toEqual([0.5]);
  expect(scaleOf(["b", "a"])).toMatchObject({ ends: ["a", "b"] });
  expect(scaleOf([1, 2, null, undefined])).toMatchObject({ ends: ["1", "2"] });
  expect(scaleOf([1, 2]).place(undefined)).toBeNull();
  expect(scaleOf([1, 2]).place("x")).toBeNull();
});

test("numbers in texts", () => {
  expect([numeric("1e-3"), numeric("0"), numeric("adam"), numeric(""), numeric(undefined)]).toEqual([0.001, 0, "adam", "", undefined]);
});
