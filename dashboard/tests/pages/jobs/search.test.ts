import { expect, test } from "vitest";

import { STATES } from "../../../src/api/types";
import {
  columnsOf,
  cutName,
  gpuHours,
  isFiltered,
  jobsParameters,
  pinnedParameters,
  readJobsSearch,
  tabOf,
  TABS,
  turnSort,
} from "../../../src/pages/jobs/search";

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

test("the filters by user, engine and time are the API's", () => {
  const search = readJobsSearch({ user: "ada", engine: "local", since: "7d", state: ["FAILED", "FAILED"] });
  expect(jobsParameters(search, null)).toBe("limit=50&state=FAILED&user=ada&engine=local&since=7d");
  expect(isFiltered(search)).toBe(true);
  expect(isFiltered({ sort: "name", col: [] })).toBe(false);
});

test("a tab is some of the states, in any order; other states are no tab", () => {
  expect(tabOf()?.name).toBe("All");
  expect(tabOf(["PENDING", "QUEUED"])?.name).toBe("Waiting");
  expect(tabOf(["FAILED", "HALTED"])).toBeUndefined();
  expect(TABS.flatMap((tab) => tab.states)).toHaveLength(STATES.length);
});

test("the API sends the parameters of the columns", () => {
  expect(jobsParameters({ col: ["param:lr", "user"] }, null)).toBe("limit=50&param=lr");
});

test("a parameter that limits the list is asked for once, whether or not it has a column", () => {
  const search = readJobsSearch({ param: "lr=0.1", col: ["param:lr", "param:batch"], group: "team" });
  expect(new URLSearchParams(jobsParameters(search, null)).getAll("param")).toEqual(["lr=0.1", "batch"]);
  expect(pinnedParameters(search)).toBe("limit=50&pinned=true&param=lr%3D0.1&param=batch");
  expect([isFiltered(search), isFiltered({ group: "team" })]).toEqual([true, false]);
});

test("of a long name, both ends are kept apart", () => {
  const name = "vit-b16-imagenet-mixup0.8-seed3407-run12";
  expect(cutName(name).join("")).toBe(name);
  expect(cutName(name)[1]).toBe("-seed3407-run12".slice(-14));
  expect(cutName("short")).toEqual(["short", ""]);
});

test("GPU-hours count the GPUs of all learners, until now while the job runs", () => {
  const job = { learners: 2, resources: { gpus: 4 }, started_at: "2026-01-31T08:00:00Z", ended_at: null };
  const now = new Date("2026-01-31T08:30:00Z").getTime();
  const as = (changes: object) => ({ ...job, ...changes }) as unknown as Parameters<typeof gpuHours>[0];
  expect(gpuHours(as({}), now)).toBe(4);
  expect(gpuHours(as({ ended_at: "2026-01-31T09:00:00Z" }), now)).toBe(8);
  expect(gpuHours(as({ resources: { gpus: 0 } }), now)).toBeNull();
  expect(gpuHours(as({ started_at: null }), now)).toBeNull();
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
