import { expect, test } from "vitest";

import { spaceOf } from "../../../src/pages/compare/space";

const job = (id: string, params: Record<string, string>, loss: number, manifest = {}) => ({
  id,
  name: id,
  params,
  manifest,
  metrics: { loss: { last: loss + 1, min: loss, max: 9 }, epoch: { last: 3, min: 0, max: 3 } },
});

test("what differs are the axes: numbers as numbers, and the value that counts of a metric", () => {
  const space = spaceOf([
    job("a", { lr: "0.1", seed: "1", kind: "x" }, 0.5, { env: { BATCH: "32" } }),
    job("b", { lr: "0.2", seed: "1", kind: "y" }, 0.25, { env: { BATCH: "64" }, parameters: { depth: 3 } }),
  ]);
  expect(space.names).toEqual(["BATCH", "kind", "lr", "loss"]);
  expect(space.points.map(({ at }) => at)).toEqual([
    [32, "x", 0.1, 0.5],
    [64, "y", 0.2, 0.25],
  ]);
});

test("jobs that are the same have no axes", () => {
  expect(spaceOf([job("a", {}, 1), job("b", {}, 1)])).toMatchObject({ names: [] });
});
