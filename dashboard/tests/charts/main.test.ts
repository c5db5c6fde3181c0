import { expect, test } from "vitest";

import { best, byWorth, goal } from "../../src/charts/main";

test("losses come first, what is validated before what is trained, and a learning rate last", () => {
  const names = ["lr", "train/loss", "layers/a_norm", "val/accuracy", "val/loss", "throughput", "train/accuracy"];
  expect(byWorth(names).slice(0, 4)).toEqual(["val/loss", "train/loss", "val/accuracy", "train/accuracy"]);
  expect(byWorth(names).at(-1)).toBe("lr");
});

test("the best of a loss is its smallest value, of an accuracy its largest; a learning rate has none", () => {
  const of = { min: 0.1, max: 0.9 };
  expect([best("val/loss", of), best("val/accuracy", of), best("lr", of)]).toEqual([0.1, 0.9, null]);
  expect([goal("eval/f1"), goal("perplexity"), goal("epoch")]).toEqual(["max", "min", null]);
});
