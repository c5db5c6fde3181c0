import { expect, test } from "vitest";

import { goalOf, grouped } from "../../src/charts/goal";

test("the last part of a name says whether small or large values are good", () => {
  const names = ["train/loss", "val_perplexity", "mean_squared_error", "val/top-5", "val_acc", "loss/speed", "onerror", "lr"];
  expect(names.map(goalOf)).toEqual(["min", "min", "min", "max", "max", null, null, null]);
});

test("charts are grouped by what stands before the first slash, those with a loss first", () => {
  const titles = ["layers/0/norm", "lr", "eval/accuracy", "train/loss", "layers/10/norm", "train/speed"];
  expect(grouped(titles.map((title) => ({ title }))).map(({ name, charts }) => [name, charts.length])).toEqual([
    ["train", 2], ["eval", 1], ["", 1], ["layers", 2],
  ]);
});
