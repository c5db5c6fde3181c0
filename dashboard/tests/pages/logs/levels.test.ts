import { expect, test } from "vitest";

import { levelOf } from "../../../src/pages/logs/levels";

test.each([
  ["2026-11-25 12:00:01 | ERROR    | train:main:12 - bad sample", "error"],
  ["Traceback (most recent call last):", "error"],
  ["torch.OutOfMemoryError: CUDA out of memory", "error"],
  ["\x1b[33mWARNING\x1b[0m  tokenizer: no pad token", "warning"],
  ["train.py:3: UserWarning: deprecated", "warning"],
  ["step 12  loss 0.3  error rate 0.01", null],
  [`${" ".repeat(300)}ERROR`, null],
])("%s", (line, level) => {
  expect(levelOf(line)).toBe(level);
});
