import { expect, test } from "vitest";

import { readLogSearch } from "../../../src/pages/logs/search";

test("a link to a line of a learner, with a search", () => {
  const search = { line: "0", learner: "2", attempt: "1", q: "loss", regex: "true", case: "1" };
  expect(readLogSearch(search)).toEqual({ line: 0, learner: 2, attempt: 1, q: "loss", regex: true, case: true });
});

test("only what matches, of a level", () => {
  expect(readLogSearch({ only: "true", level: "warning" })).toEqual({ only: true, level: "warning" });
  expect(readLogSearch({ only: "0", level: "loud" })).toEqual({});
});

test("values that mean nothing are ignored; learners and attempts count from 1", () => {
  expect(readLogSearch({ line: "-1", learner: "0", attempt: "x", q: "", regex: "no" })).toEqual({});
});
