import { expect, test } from "vitest";

import { usageOf } from "../../../src/pages/job/usageOf";

const series = (name: string, learner: number, last: number, attempt = 2) => ({
  name: `system/${name}`,
  learner,
  attempt,
  last,
  max: last * 2,
});

test("the use is the mean of the attempt's learners; GPUs share theirs", () => {
  const all = [
    series("cpu_percent", 1, 300),
    series("cpu_percent", 2, 100),
    series("cpu_percent", 1, 9000, 1),
    series("memory_bytes", 1, 1024),
    series("memory_limit_bytes", 1, 9999),
    series("gpu0_percent", 1, 90),
    series("gpu1_percent", 1, 10),
  ];
  expect(usageOf(all, 2, "last")).toEqual({ learners: 2, cpus: 2, memory: 1024, gpus: 0.5 });
  expect(usageOf(all, 2, "max")?.memory).toBe(2048);
});

test("what was not reported is not known", () => {
  expect(usageOf([], 1, "last")).toBeNull();
  expect(usageOf([series("cpu_percent", 1, 50)], 2, "last")?.gpus).toBeNull();
});
