// The mean use of the learners of an attempt.
import type { Series } from "../../charts/lines";

interface Use {
  learners: number;
  /** Cores; null where none was reported. */
  cpus: number | null;
  /** Bytes. */
  memory: number | null;
  /** 0 … 1, the mean of all GPUs. */
  gpus: number | null;
}

type Known = Pick<Series, "name" | "learner" | "attempt" | "last" | "max">;

export function usageOf(series: readonly Known[], attempt: number, which: "last" | "max"): Use | null {
  const own = series.filter((known) => known.attempt === attempt);
  if (!own.length) return null;
  const mean = (name: RegExp) => {
    const found = own.flatMap((known) => (name.test(known.name) ? (known[which] ?? []) : []));
    return found.length ? found.reduce((sum, each) => sum + each, 0) / found.length : null;
  };
  const percent = (name: RegExp) => {
    const found = mean(name);
    return found === null ? null : found / 100;
  };
  return {
    learners: new Set(own.map((known) => known.learner)).size,
    cpus: percent(/(^|\/)cpu_percent$/),
    memory: mean(/(^|\/)memory_bytes$/),
    gpus: percent(/(^|\/)gpu\d+_percent$/),
  };
}
