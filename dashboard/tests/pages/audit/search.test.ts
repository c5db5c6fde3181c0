import { expect, test } from "vitest";

import { readAuditSearch } from "../../../src/pages/audit/search";

test("each filter of the URL is read; what the page does not know is left out", () => {
  const search = {
    user: "ada",
    action: "jobs.halt",
    object: "job:job-4k9x2m7qd1ze",
    project: "vision",
    since: "2026-01-31",
    until: "2h",
    outcome: "refused",
  };
  expect(readAuditSearch({ ...search, page: 3, outcomes: ["failed"] })).toEqual(search);
});

test("an empty filter is none", () => {
  expect(readAuditSearch({ user: "", action: "", outcome: "" })).toEqual({});
  expect(readAuditSearch({})).toEqual({});
});

test("an outcome is one of three, in lower case", () => {
  expect(readAuditSearch({ outcome: "failed" })).toEqual({ outcome: "failed" });
  for (const outcome of ["FAILED", "toString", 1, null, ["failed"]]) expect(readAuditSearch({ outcome })).toEqual({});
});

test("a filter that stands twice in the URL is none", () => {
  expect(readAuditSearch({ user: ["ada", "bob"], action: "jobs.halt" })).toEqual({ action: "jobs.halt" });
});
