import { expect, test } from "vitest";

import { bestFirst, parametersOf, pointsOf, shown, type Sweep, type Trial, valueLines } from "../../../src/pages/sweeps/trials";

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

test("trials with a value are points, the best first", () => {
  const sweep = { goal: "min", metric: "loss", best: trial(2, 1) } as Sweep;
  const trials = [trial(0, 3, { lr: 1 }), trial(1, null, { lr: 2 }), trial(2, 1, { lr: 4, kind: "a" })];
  const { names, points } = pointsOf(sweep, trials);
  expect(names).toEqual(["lr", "kind", "loss"]);
  expect(points).toMatchObject([
    { key: "2", at: [4, "a", 1], good: 1, best: true },
    { key: "0", at: [1, undefined, 3], good: 0, best: false },
  ]);
  expect(pointsOf(sweep, [trials[0]!]).points).toMatchObject([{ good: 0.5 }]);
});
