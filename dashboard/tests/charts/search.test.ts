import { expect, test } from "vitest";

import { MOST_JOBS, readChartSearch } from "../../src/charts/search";
import { readCompareSearch } from "../../src/pages/compare/search";

test("everything that a chart shows is read from the URL", () => {
  const texts = { x: "elapsed", log: "1", attempt: ["1", "2"], q: "loss" };
  expect(readChartSearch({ ...texts, from: "1.5", to: "9", smooth: "60", learner: "2" })).toEqual({
    ...texts,
    from: 1.5,
    to: 9,
    smooth: 60,
    learner: ["2"],
  });
});

test("values that mean nothing are ignored", () => {
  expect(readChartSearch({ x: "epochs", log: "yes", smooth: "100", learner: "", q: "" })).toEqual({});
  expect(readChartSearch({ smooth: "-1" })).toEqual({});
});

test("a zoom needs both ends, in their order", () => {
  const others = [["5"], [undefined, "5"], ["9", "5"], ["5", "5"], ["x", "5"], ["5", "Infinity"]];
  for (const [from, to] of others) expect(readChartSearch({ from, to })).toEqual({});
});

test("a chart shows at most ten jobs, and none of them twice", () => {
  const ids = Array.from({ length: 20 }, (_, at) => `job-${at}`);
  expect(readChartSearch({ with: ["a", "b", "a"] }).with).toEqual(["a", "b"]);
  expect(readChartSearch({ with: ids }).with).toHaveLength(MOST_JOBS - 1); // the page's own job is the tenth
  expect(readCompareSearch({ job: [...ids, ...ids] }).job).toEqual(ids.slice(0, MOST_JOBS));
});

test("the comparison has no jobs beside the compared ones", () => {
  expect(readCompareSearch({ job: "a", with: ["b"], log: "1" })).toEqual({ job: ["a"], log: "1" });
});
