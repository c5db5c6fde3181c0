import { expect, test } from "vitest";

import { bestMark } from "../../src/charts/best";
import { chartsOf } from "../../src/charts/charts";
import { epochScale, isEpoch } from "../../src/charts/epochs";
import type { Line, Series } from "../../src/charts/lines";
import { movePin, splitPinned, togglePin } from "../../src/charts/pins";

test("steps and epochs are on straight lines through the points of the metric `epoch`, and beyond them", () => {
  const scale = epochScale([{ x: [0, 100, 200], last: [0, 1, 2] }, { x: [200, 400], last: [2, 3] }]);
  expect([50, 100, 300, 600].map((step) => scale?.toEpoch(step))).toEqual([0.5, 1, 2.5, 4]);
  expect([0.5, 2.5].map((epoch) => scale?.toStep(epoch))).toEqual([50, 300]);
});

test("what a retry repeats counts once; one point is no scale", () => {
  const scale = epochScale([{ x: [0, 100, 100, 200], last: [0, 1, 0.9, 2] }, { x: [150], last: [null] }]);
  expect(scale?.toEpoch(150)).toBe(1.5);
  expect(epochScale([{ x: [3], last: [1] }])).toBeNull();
  expect(["train/epoch", "epoch", "epochs"].map(isEpoch)).toEqual([true, true, false]);
});

test("training and validation share a chart on request; losses come first, then scores", () => {
  const series = ["train/loss", "val/loss", "lr", "val_acc"].map((name) => ({ name }) as Series);
  const found = chartsOf("user", series, true).map((chart) => [chart.title, chart.names.map(chart.part)]);
  expect(found).toEqual([["loss", ["train", "val"]], ["acc", ["val"]], ["lr", [""]]]);
});

test("pins have an order, in which only charts that are shown are passed over", () => {
  const pins = togglePin(togglePin(["a", "gone", "b"], "c"), "a");
  expect(pins).toEqual(["gone", "b", "c"]);
  const all = ["a", "gone", "b"];
  const shown = (title: string) => title !== "gone";
  expect(movePin(all, "b", -1, shown)).toEqual(["b", "a", "gone"]);
  expect(movePin(all, "a", -1, shown)).toEqual(all);
  expect(splitPinned([{ title: "x" }, { title: "b" }, { title: "a" }], all)).toEqual([
    [{ title: "a" }, { title: "b" }],
    [{ title: "x" }],
  ]);
});

test("the best point is marked where it is in sight", () => {
  const line = { x: [1, 2, 3], min: [5, 2, 4], max: [6, 3, 9], color: "red" } as unknown as Line;
  expect(bestMark([line], "min", 2)).toEqual({ x: 2, y: 2, color: "red" });
  expect(bestMark([line], "max", 9)?.x).toBe(3);
  expect(bestMark([line], "min", 1)).toBeNull();
});
