import { expect, test } from "vitest";

import { axisOf, bestFirst, parametersOf, shown, type Trial, valueLines } from "../../../src/pages/sweeps/trials";

const trial = (number: number, value: number | null, parameters: Trial["parameters"] = {}) => ({ number, value, parameters }) as Trial;

test("the best trials come first, and those without a value last", () => {
  const trials = [trial(0, null), trial(1, 0.5), trial(2, 0.9), trial(3, 0.5), trial(4, null)];
  expect(bestFirst(trials, "max").map(({ number }) => number)).toEqual([2, 1, 3, 0, 4]);
  expect(bestFirst(trials, "min").map(({ number }) => number)).toEqual([1, 3, 2, 0, 4]);
});

test("a line shows the best value so far, over the trials that have one", () => {
  const [each, best] = valueLines([trial(2, 3), trial(0, 5), trial(1, null), trial(3, 4)], "min");
  expect([each?.x, each?.last]).toEqual([[0, 2, 3], [5, 3, 4]]);
  expect(best?.last).toEqual([5, 3, 3]);
  expect(valueLines([trial(0, null)], "max")).toEqual([]);
});

test("parameters are those of all trials; numbers have few digits", () => {
  expect(parametersOf([trial(0, 1, { lr: 1 }), trial(1, 1, { lr: 2, batch: 3 })])).toEqual(["lr", "batch"]);
  expect([shown(0.0123456789), shown("adam"), shown(true), shown(undefined)]).toEqual(["0.012346", "adam", "true", "–"]);
});

test("an axis is logarithmic where its numbers span magnitudes, and has other values by name", () => {
  const trials = [1e-4, 1e-2, 1].map((lr, at) => trial(at, 1, { lr, depth: 2 + at, kind: ["b", "a", "b"][at]! }));
  expect(trials.map(axisOf(trials, "lr").place).map((place) => Number(place?.toFixed(3)))).toEqual([0, 0.5, 1]);
  expect(trials.map(axisOf(trials, "depth").place)).toEqual([0, 0.5, 1]);
  expect(axisOf(trials, "kind")).toMatchObject({ ends: ["a", "b"] });
  expect(trials.map(axisOf(trials, "kind").place)).toEqual([1, 0, 1]);
  expect(axisOf(trials, "lr").place(trial(9, 1))).toBeNull();
  expect(axisOf([trial(0, 1, { lr: 3 })], "lr").place(trial(0, 1, { lr: 3 }))).toBe(0.5);
});
