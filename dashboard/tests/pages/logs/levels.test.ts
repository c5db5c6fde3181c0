import { expect, test } from "vitest";

import { levelOf, patternOf, reaches } from "../../../src/pages/logs/levels";

test.each([
  ["ERROR:root:it failed", "error"],
  ["2026-01-31 08:00:00,123 - train - CRITICAL - no memory", "error"],
  ["\u001b[31mERROR\u001b[0m no memory", "error"],
  ["E0131 08:00:00.123456 12 cuda.cc:33] no device", "error"],
  ['{"level": "error", "message": "no memory"}', "error"],
  ["Traceback (most recent call last):", "error"],
  ["torch.cuda.OutOfMemoryError: CUDA out of memory", "error"],
  ["KeyboardException", "error"],
  ["[WARNING] slow loader", "warning"],
  ["/lib/torch/x.py:12: UserWarning: lr_scheduler before optimizer", "warning"],
  ["level=warn msg=slow", "warning"],
  ["2026-01-31 08:00:00 | INFO     | train:12 - recovered from ERROR", "info"],
  ["DEBUG batch 12", "debug"],
  ["step 12 loss 0.3 error 0.1", null],
  ["0 errors; INFORMATION; TERROR", null],
  ["the ValueError was caught", null],
])("%j is of level %s", (line, level) => {
  expect(levelOf(line)).toBe(level);
});

test("a level takes in the graver ones, and the search finds all of them", () => {
  const lines = ["ERROR a", "WARN b", "INFO c", "DEBUG d", "e"];
  for (const [level, most] of [["error", 1], ["warning", 2], ["info", 3]] as const) {
    expect(lines.filter((line) => reaches(line, level))).toEqual(lines.slice(0, most));
    expect(lines.filter((line) => new RegExp(patternOf(level)).test(line))).toEqual(lines.slice(0, most));
  }
});

test("a pattern is short enough for a search", () => {
  expect(patternOf("info").length).toBeLessThanOrEqual(1000);
});
