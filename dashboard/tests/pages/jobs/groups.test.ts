import { expect, test } from "vitest";

import type { Job } from "../../../src/api/types";
import { groupKeys, groupsOf } from "../../../src/pages/jobs/groups";

const job = (id: string, labels: Record<string, string>) => ({ id, labels }) as unknown as Job;
const jobs = [job("a", {}), job("b", { team: "x" }), job("c", { team: "y", run: "1" }), job("d", { team: "x" })];

test("groups are in the order of their first jobs, and the jobs without the label come last", () => {
  const found = groupsOf(jobs, "team").map(({ value, jobs: members }) => [value, members.map(({ id }) => id).join()]);
  expect(found).toEqual([["x", "b,d"], ["y", "c"], [null, "a"]]);
  expect(groupKeys(jobs)).toEqual(["run", "team"]);
});
