import { expect, test } from "vitest";

import { chartsOf } from "../../src/charts/charts";
import { type Known, makeKey, originsOf, toLine } from "../../src/charts/jobLines";
import type { ChartedJob } from "../../src/charts/jobs";
import { type Buckets, color } from "../../src/charts/lines";

const job = (id: string, name: string): ChartedJob => ({ id, name, live: false });
const known = (of: string, learner: number, attempt: number, time = 0) =>
  ({ job: of, learner, attempt, first_time: time, name: "loss" }) as Known;
const buckets = (name: string, learner: number, attempt: number) =>
  ({ name, learner, attempt, x: [61_000, 63_500], min: [1, 2], max: [3, 4], last: [2, 3] }) as Buckets;

test("each learner of a job has a colour of its own, in the order of learners", () => {
  const key = makeKey([job("a", "mnist")], [known("a", 10, 1), known("a", 2, 1), known("a", 1, 1)]);
  expect([1, 2, 10].map((learner) => key.color("a", learner))).toEqual([0, 1, 2]);
  expect(key.label("a", 2, 1)).toBe("learner 2");
});

test("an earlier attempt looks different from the newest one, for each job by itself", () => {
  const jobs = [job("a", "mnist"), job("b", "cifar")];
  const key = makeKey(jobs, [known("a", 1, 1), known("a", 1, 2), known("b", 1, 1)]);
  expect([key.old("a", 1, 1), key.old("a", 1, 2), key.old("b", 1, 1)]).toEqual([true, false, false]);
  expect(key.label("a", 1, 2)).toBe("mnist, attempt 2");
});

test("among several jobs each job has a colour, and ids distinguish jobs of the same name", () => {
  const jobs = [job("job-aaaa1111", "mnist"), job("job-bbbb2222", "mnist")];
  const key = makeKey(jobs, [known("job-aaaa1111", 1, 1), known("job-bbbb2222", 1, 1), known("job-bbbb2222", 2, 1)]);
  expect([key.color("job-bbbb2222", 1), key.color("job-bbbb2222", 2)]).toEqual([1, 1]);
  expect(key.label("job-bbbb2222", 2, 1)).toBe("mnist (2222), learner 2");
});

test("a job's elapsed time begins with the first point of any of its series", () => {
  expect(originsOf([known("a", 1, 1, 500), known("a", 2, 1, 300), known("b", 1, 1, 900)])).toEqual(
    new Map([
      ["a", 300],
      ["b", 900],
    ]),
  );
});

test("elapsed time is in seconds since the origin; other axes are left as they are", () => {
  const [chart] = chartsOf("user", [known("a", 1, 1)]);
  const key = makeKey([job("a", "mnist")], [known("a", 1, 1)]);
  if (!chart) throw new Error("no chart");
  expect(toLine(buckets("loss", 1, 1), "a", chart, "elapsed", 61_000, key).x).toEqual([0, 2.5]);
  expect(toLine(buckets("loss", 1, 1), "a", chart, "time", 61_000, key).x).toEqual([61_000, 63_500]);
});

test("the series of a chart have a colour and a label each", () => {
  const names = ["system/gpu0_percent", "system/gpu1_percent"];
  const all = names.flatMap((name) => [1, 2].map((learner) => ({ ...known("a", learner, 1), name })));
  const [chart] = chartsOf("system", all);
  const key = makeKey([job("a", "mnist")], all);
  if (!chart) throw new Error("no chart");
  const lines = all.map(({ name, learner }) => toLine(buckets(name, learner, 1), "a", chart, "time", 0, key));
  expect(lines.map((line) => [line.label, line.color])).toEqual([
    ["learner 1, GPU 0", color(0)],
    ["learner 2, GPU 0", color(2)],
    ["learner 1, GPU 1", color(1)],
    ["learner 2, GPU 1", color(3)],
  ]);
  expect(new Set(lines.map((line) => line.key)).size).toBe(4);
});
