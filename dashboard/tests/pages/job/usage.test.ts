import { expect, test } from "vitest";

import type { Series } from "../../../src/charts/lines";
import { usageOf } from "../../../src/pages/job/usage";

const series = (name: string, learner: number, last: number, max: number, attempt = 1) =>
  ({ name: `system/${name}`, learner, last, max, attempt }) as Series;
const job = (changes: object) => ({ resources: { cpus: 2, memory: 2 ** 30, gpus: 0, ...changes } }) as unknown as Parameters<typeof usageOf>[0];

test("the learner that uses most is shown, of the newest attempt", () => {
  const found = usageOf(
    job({}),
    [series("cpu_percent", 1, 190, 200, 1), series("cpu_percent", 1, 20, 80, 2), series("cpu_percent", 2, 50, 60, 2),
      series("memory_bytes", 1, 2 ** 29, 2 ** 29, 2), series("memory_limit_bytes", 1, 2 ** 30, 2 ** 30, 2)],
    false,
  );
  expect(found).toEqual([
    { name: "CPU", now: 0.25, peak: 0.4, text: "0.5 of 2 CPUs" },
    { name: "Memory", now: 0.5, peak: 0.5, text: "512 MiB of 1.0 GiB" },
  ]);
});

test("of a job that has ended, the largest use is shown; GPUs only where it has some", () => {
  const gpu = [series("gpu0_percent", 1, 0, 97), series("gpu1_percent", 1, 0, 88)];
  expect(usageOf(job({ gpus: 2 }), gpu, true)).toEqual([{ name: "GPU", now: 0, peak: 0.97, text: "at most 97 % busy" }]);
  expect(usageOf(job({}), gpu, true)).toEqual([]);
});
