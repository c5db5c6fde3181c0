import { expect, test } from "vitest";

import { partsOf } from "../../../src/pages/jobs/parts";

const numbers = (count: number) => Array.from({ length: count }, (_, at) => at);

test.each([
  [0, []],
  [1, [1]],
  [25, [25]],
  [26, [25, 1]],
  [1000, Array.from({ length: 40 }, () => 25)],
])("%d rows are in parts of at most 25", (count, sizes) => {
  const parts = partsOf(numbers(count));
  expect(parts.map((part) => part.length)).toEqual(sizes);
  expect(parts.flat()).toEqual(numbers(count));
});
