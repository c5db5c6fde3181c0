import { expect, test } from "vitest";

import { better, judged, mainMetrics } from "../../../src/pages/models/summary";

const metric = (last: number) => ({ last, min: last - 1, max: last + 1 });
const metrics = { "train/loss": metric(2), "val/loss": metric(3), "val/accuracy": metric(4), epoch: metric(5) };

test("the best value counts, and the last of what is neither a loss nor a score", () => {
  expect(["val/loss", "val/accuracy", "epoch", "toString"].map((name) => judged(metrics, name))).toEqual([2, 5, 5, null]);
});

test("scores come before losses, and validation before training", () => {
  expect(mainMetrics([{ metrics: {} }, { metrics }], 3)).toEqual(["val/accuracy", "val/loss", "train/loss"]);
});

test("the better of two", () => {
  expect(better("loss", [1, 2])).toBe(0);
  expect(better("accuracy", [1, 2])).toBe(1);
  expect([better("loss", [1, 1]), better("loss", [1, null]), better("epoch", [1, 2])]).toEqual([null, null, null]);
});
