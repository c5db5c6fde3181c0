import { expect, test } from "vitest";

import { mainCharts } from "../../../src/pages/job/mainMetrics";

const metrics = (...names: string[]) =>
  Object.fromEntries(names.map((name) => [name, { last: 2, min: 1, max: 3, step: 9, time: 0 }]));
const charts = (names: string[], manifest = {}) => mainCharts({ metrics: metrics(...names), manifest });

test("training and validation share a chart; losses come first, then scores", () => {
  const found = charts(["layers/0/norm", "lr", "eval/class0/f1", "train/accuracy", "train/loss", "val/accuracy", "val/loss", "val/top5"]);
  expect(found.map((chart) => [chart.title, chart.names])).toEqual([
    ["loss", ["train/loss", "val/loss"]],
    ["accuracy", ["train/accuracy", "val/accuracy"]],
    ["top5", ["val/top5"]],
  ]);
  expect(found[0]?.part("val/loss")).toBe("val");
});

test("the best value is that of validation: the smallest loss, the largest score", () => {
  const [loss, accuracy] = charts(["train_loss", "val_loss", "accuracy"]);
  expect(loss?.best).toEqual({ name: "val_loss", value: 1 });
  expect(loss?.part("train_loss")).toBe("train");
  expect(accuracy?.best).toEqual({ name: "accuracy", value: 3 });
});

test("what the manifest extracts from the log comes before everything", () => {
  const manifest = { evaluation_metrics: { groups: { epochs: { scalars: { speed: {} } } } } };
  expect(charts(["loss", "epochs/speed"], manifest)[0]?.title).toBe("epochs/speed");
});

test("other metrics are shown only where there are no losses and scores", () => {
  expect(charts(["speed", "lr"]).map((chart) => [chart.title, chart.best])).toEqual([
    ["speed", null],
    ["lr", null],
  ]);
  expect(charts(["speed", "loss"]).map((chart) => chart.title)).toEqual(["loss"]);
  expect(mainCharts({ metrics: {}, manifest: {} })).toEqual([]);
});
