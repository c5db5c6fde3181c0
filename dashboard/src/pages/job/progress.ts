// How far a job's training is, and when it may end: from the steps or epochs that it reports, and the number that it is to do.
import type { JobDetail } from "../../api/types";
import type { Series } from "../../charts/lines";
import { leaf } from "../../charts/goal";

export interface Progress {
  unit: "step" | "epoch";
  done: number;
  /** How many it is to do; null if nothing says so. */
  total: number | null;
  /** Where the total stands, in words. */
  source: string;
  /** When all will be done at this pace, in ms since 1970; null if that can't be told. */
  ends: number | null;
}

type Job = Pick<JobDetail, "manifest" | "params" | "framework">;
const NAMES = {
  step: /^(?:max|total|num|n|train)?[_-]?(?:train(?:ing)?[_-]?)?(?:steps?|iterations?|iters?)$/i,
  epoch: /^(?:max|total|num|n|train)?[_-]?(?:train(?:ing)?[_-]?)?epochs$/i,
};
const FLAG = /(?:^|\s)--?([A-Za-z][\w-]*)[= ]\s*["']?(\d[\d_]*)["']?(?=\s|$)/g;

/** The number of steps or epochs that the job is to do, as its command, its environment or its parameters name it. */
export function totalOf(job: Job, unit: Progress["unit"]): { total: number; source: string } | null {
  const found = (name: string, text: unknown, source: string) => {
    const total = /^\d[\d_]*$/.test(String(text)) ? Number(String(text).replaceAll("_", "")) : 0;
    return NAMES[unit].test(name) && total > 1 ? { total, source } : null;
  };
  for (const [, name = "", text] of job.framework.command.matchAll(FLAG)) {
    const its = found(name, text, `--${name} of the command`);
    if (its) return its;
  }
  for (const [name, text] of Object.entries((job.manifest["env"] as Record<string, unknown> | undefined) ?? {})) {
    const its = found(name, text, `the variable ${name}`);
    if (its) return its;
  }
  for (const [name, text] of Object.entries(job.params ?? {})) {
    const its = found(leaf(name), text, `the logged parameter ${name}`);
    if (its) return its;
  }
  return null;
}

/** By steps if their number is known, else by epochs, else the steps alone; null if the job reports neither. */
export function progressOf(job: Job, series: readonly Series[]): Progress | null {
  const newest = Math.max(0, ...series.map((line) => line.attempt));
  const lines = series.filter((line) => line.attempt === newest);
  const longest = lines.reduce<Series | null>((best, line) => (best && best.last_step >= line.last_step ? best : line), null);
  const epochs = lines.find((line) => leaf(line.name) === "epoch" && line.last !== null);
  const steps = totalOf(job, "step");
  if (longest && steps && longest.last_step <= steps.total) {
    const done = longest.last_step;
    return { unit: "step", done, ...steps, ends: endOf(longest, longest.first_step, done, steps.total) };
  }
  const all = totalOf(job, "epoch");
  if (epochs && all && (epochs.last ?? 0) <= all.total) {
    const done = epochs.last ?? 0;
    return { unit: "epoch", done, ...all, ends: endOf(epochs, epochs.min ?? done, done, all.total) };
  }
  if (!longest || longest.last_step <= 0) return null;
  return { unit: "step", done: longest.last_step, total: null, source: "", ends: null };
}

/** At the pace since the attempt's first point: what an earlier attempt has done does not count. */
function endOf(line: Series, first: number, done: number, total: number): number | null {
  const took = line.last_time - line.first_time;
  if (done <= first || took <= 0) return null;
  return line.last_time + ((total - done) * took) / (done - first);
}
