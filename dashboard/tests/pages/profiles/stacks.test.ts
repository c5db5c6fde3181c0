import { expect, test } from "vitest";

import { hottest, threads } from "../../../src/pages/profiles/stacks";

const TEXT = `thread (7): reader;run (threading.py:982);load (data.py:4) 30
thread (1): MainThread;<module> (train.py:9);step (train.py:4);backward (torch/autograd.py:2) 6
thread (1): MainThread;<module> (train.py:9);step (train.py:4) 2
thread (1): MainThread;<module> (train.py:9);wait (train.py:6) 2
cut off in the middle of a li`;

test("there is a tree for each thread, the main thread first", () => {
  const [main, reader, ...more] = threads(TEXT);
  expect(more).toEqual([]);
  expect([main?.name, main?.value, reader?.name, reader?.value]).toEqual(["MainThread", 10, "reader", 30]);
  const module = main?.children[0];
  expect(main?.children).toHaveLength(1);
  expect(module?.children.map(({ name, value }) => [name, value])).toEqual([
    ["step (train.py:4)", 8],
    ["wait (train.py:6)", 2],
  ]);
});

test("a call's own time is without the calls that it makes", () => {
  const [main] = threads(TEXT);
  expect(main && hottest(main, 2)).toEqual([
    { name: "backward (torch/autograd.py:2)", own: 0.6, whole: 0.6 },
    { name: "step (train.py:4)", own: 0.2, whole: 0.8 },
  ]);
});

test("a recursive call counts once", () => {
  const [main] = threads("thread (1): MainThread;f (a.py:1);f (a.py:1) 4");
  expect(main && hottest(main, 9)).toEqual([{ name: "f (a.py:1)", own: 1, whole: 1 }]);
});

test("a file without stacks has no threads", () => {
  expect(threads("")).toEqual([]);
  expect(threads("no stack\nthread (1) 5\n x 3")).toEqual([]);
});
