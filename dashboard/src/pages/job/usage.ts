// What a job's learners use of what they asked for, read from the system's metrics.
import type { JobDetail } from "../../api/types";
import type { Series } from "../../charts/lines";
import { size, value } from "../../ui/format";

export interface Usage {
  name: string;
  /** The share of what was asked for, from 0: the newest value of the learner that uses most, and the largest ever. */
  now: number;
  peak: number;
  /** In words: `0.4 of 2 CPUs`. */
  text: string;
}

/** Of the newest attempt. A learner counts against its own share, and the one that uses most is shown. */
export function usageOf(job: Pick<JobDetail, "resources">, series: readonly Series[], over: boolean): Usage[] {
  const attempt = Math.max(0, ...series.map((found) => found.attempt));
  const of = (pattern: RegExp) => series.filter((found) => found.attempt === attempt && pattern.test(found.name));
  const most = (found: readonly Series[], which: "last" | "max") => Math.max(0, ...found.map((line) => line[which] ?? 0));
  const usage: Usage[] = [];
  const add = (name: string, pattern: RegExp, all: number, words: (used: number) => string) => {
    const found = of(pattern);
    if (!found.length || all <= 0) return;
    const [now, peak] = [most(found, "last"), most(found, "max")];
    usage.push({ name, now: now / all, peak: peak / all, text: over ? `at most ${words(peak)}` : words(now) });
  };
  const { cpus, memory, gpus } = job.resources;
  add("CPU", /(^|\/)cpu_percent$/, cpus * 100, (used) => `${value(Number((used / 100).toFixed(2)))} of ${value(cpus)} CPUs`);
  add("Memory", /(^|\/)memory_bytes$/, memory, (used) => `${size(used)} of ${size(memory)}`);
  if (gpus) add("GPU", /(^|\/)gpu\d+_percent$/, 100, (used) => `${Math.round(used)} % busy`);
  return usage;
}
