import { expect, test } from "vitest";

import { latest } from "../../../src/pages/profiles/collectives";

const entries = (group: string, first: number, ...ms: number[]) =>
  ms.map((at, n) => `${group} ${first + n} all_reduce ${at * 1e6}\n`).join("");

test("the rank that the others wait for comes first", () => {
  const found = latest(
    new Map([
      [0, entries("0", 1, 500, 1000, 2000, 3000, 4000)],
      [1, entries("0", 1, 990, 1100, 2100, 3100, 3900)],
    ]),
  );
  expect(found).toEqual({
    group: "0",
    numbers: [2, 3, 4, 5], // without the first, which they enter as they start
    ranks: [
      { rank: 1, last: 0.75, median: 100, late: [100, 100, 100, 0] },
      { rank: 0, last: 0.25, median: 0, late: [0, 0, 0, 100] },
    ],
  });
});

test("only the collectives that all ranks of the largest group have entered are compared", () => {
  const found = latest(
    new Map([
      [0, entries("pair", 1, 1, 2, 3, 4) + entries("0", 5, 10, 11, 12)],
      [1, `${entries("pair", 1, 1, 2, 3, 4)}${entries("0", 6, 11, 13)}cut o`],
      [2, entries("0", 5, 10, 11, 12, 13)],
    ]),
  );
  expect([found?.group, found?.numbers, found?.ranks[0]?.rank]).toEqual(["0", [6, 7], 1]);
  expect(latest(new Map([[0, entries("0", 1, 1)]]))).toBeNull();
});
