import { expect, test } from "vitest";

import type { Series } from "../../../src/charts/lines";
import { progressOf, totalOf } from "../../../src/pages/job/progress";

const job = (command: string, env = {}, params = {}) => ({
  framework: { name: "python", version: "3", launcher: "none", command },
  manifest: { env },
  params,
});
const line = (name: string, own: Partial<Series>) =>
  ({ name, attempt: 1, learner: 1, first_step: 0, last_step: 0, first_time: 0, last_time: 0, last: 0, min: 0, max: 0, ...own }) as Series;

test("the number of steps or epochs is found in the command, the environment, the parameters", () => {
  expect(totalOf(job("python t.py --max-steps=10_000 --lr 0.1"), "step")).toEqual({ total: 10_000, source: "--max-steps of the command" });
  expect(totalOf(job("t.py --num_train_epochs 3"), "epoch")?.total).toBe(3);
  expect(totalOf(job("t.py", { EPOCHS: "5" }), "epoch")).toEqual({ total: 5, source: "the variable EPOCHS" });
  expect(totalOf(job("t.py", {}, { "trainer/max_steps": "70" }), "step")?.source).toBe("the logged parameter trainer/max_steps");
  const other = job("t.py --steps-per-epoch 5 --warmup-steps 100 --epochs many --save_steps 7 --max-steps -1");
  expect([totalOf(other, "step"), totalOf(other, "epoch")]).toEqual([null, null]);
});

test("the end is at the pace of the newest attempt, whatever an earlier attempt has done", () => {
  const lines = [
    line("loss", { last_step: 900, first_time: 0, last_time: 9 }),
    line("loss", { attempt: 2, first_step: 500, last_step: 600, first_time: 10_000, last_time: 20_000 }),
  ];
  const found = progressOf(job("t.py --max-steps 1000"), lines);
  expect(found).toMatchObject({ unit: "step", done: 600, total: 1000, ends: 60_000 });
});

test("epochs count if the number of steps is unknown; without either, there are only steps", () => {
  const lines = [
    line("loss", { last_step: 600, last_time: 9 }),
    line("train/epoch", { last_step: 500, last: 1.5, min: 0.5, first_time: 1000, last_time: 2000 }),
  ];
  expect(progressOf(job("t.py --epochs 3"), lines)).toMatchObject({ unit: "epoch", done: 1.5, total: 3, ends: 3500 });
  expect(progressOf(job("t.py"), lines)).toMatchObject({ unit: "step", done: 600, total: null, ends: null });
  expect(progressOf(job("t.py --max-steps 10"), lines)).toMatchObject({ total: null });
  expect(progressOf(job("t.py --epochs 3"), [])).toBeNull();
});
