import { expect, test } from "vitest";

import { columnsOf, jobsParameters, readJobsSearch, turnSort } from "../../../src/pages/jobs/search";

test("one filter and several are read alike; states that do not exist are ignored", () => {
  expect(readJobsSearch({ state: ["FAILED", "LOST", "failed"], label: "team=vision", metric: ["loss<0.3"] })).toEqual({
    state: ["FAILED"],
    label: ["team=vision"],
    metric: ["loss<0.3"],
  });
  expect(readJobsSearch({ state: "LOST", q: "", sort: "", col: [] })).toEqual({});
});

test("the API is asked for what the URL says, page by page", () => {
  const search = readJobsSearch({ state: ["FAILED", "HALTED"], label: "a=b&c", q: "mnist", sort: "-metric:loss" });
  const parameters = new URLSearchParams(jobsParameters(search, "next"));
  expect(parameters.getAll("state")).toEqual(["FAILED", "HALTED"]);
  expect(parameters.getAll("label")).toEqual(["a=b&c"]);
  const others = ["q", "sort", "cursor"].map((name) => parameters.get(name));
  expect(others).toEqual(["mnist", "-metric:loss", "next"]);
  expect(jobsParameters({}, null)).toBe("limit=50");
});

test("columns are not part of what the API is asked for", () => {
  expect(jobsParameters({ col: ["metric:loss"] }, null)).toBe("limit=50");
  expect(columnsOf({ col: ["metric:loss"] })).toEqual(["metric:loss"]);
  expect(columnsOf({})).toContain("created");
});

test("a column's head sorts descending, ascending, and then no more", () => {
  let sort: string | undefined;
  const turns = ["name", "name", "name", "name", "state"].map((column) => (sort = turnSort(sort, column)));
  expect(turns).toEqual(["-name", "name", undefined, "-name", "-state"]);
});
