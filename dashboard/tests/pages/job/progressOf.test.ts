import { expect, test } from "vitest";

import { progressOf } from "../../../src/pages/job/progressOf";

test.each([
  ["Epoch 3/10", { what: "epoch", done: 3, total: 10 }],
  ["Epoch [3/10], Step [120/4,800]", { what: "epoch", done: 3, total: 10 }],
  ["\x1b[36mstep 1,776 of 4,800\x1b[0m  loss 0.2", { what: "step", done: 1776, total: 4800 }],
  [" 37%|███▋      | 1776/4800 [02:14<03:48, 13.2it/s]", { what: "step", done: 1776, total: 4800 }],
])("%s", (line, progress) => {
  expect(progressOf(["Epoch 1/10", line, "saved"])).toEqual(progress);
});

test("lines without a count, and counts beyond their end, say nothing", () => {
  expect(progressOf(["step 12 loss 0.3", "epoch 12/10", "on 2026/11/25"])).toBeNull();
});
