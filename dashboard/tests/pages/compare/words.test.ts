import { expect, test } from "vitest";

import { changedWords } from "../../../src/pages/compare/words";

test("only words that differ are marked", () => {
  expect(changedWords("python train.py --lr 0.1", "python train.py --lr 0.2 --fast").filter(({ changed }) => changed)).not.toEqual([]);
  const parts = changedWords("python train.py --epochs 3", "python train.py --epochs 5");
  expect(parts.map(({ text }) => text).join("")).toBe("python train.py --epochs 5");
  expect(parts.filter(({ changed }) => changed)).toEqual([{ text: "5", changed: true }]);
});

test("the same, nothing before, and very long values", () => {
  expect(changedWords("a", "a")).toEqual([{ text: "a", changed: false }]);
  expect(changedWords(undefined, "a")).toEqual([{ text: "a", changed: false }]);
  expect(changedWords("a", "b".repeat(5000))).toMatchObject([{ changed: true }]);
});
