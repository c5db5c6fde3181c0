// What the tables of a model's versions show of their metrics.
import { goalOf } from "../../charts/goal";

export interface VersionMetric {
  last?: number | null;
  min?: number | null;
  max?: number | null;
}
type Metrics = Readonly<Record<string, VersionMetric>>;

/** The value by which a version is judged: the smallest of a loss, the largest of a score, else the last. */
export function judged(metrics: Metrics, name: string): number | null {
  const found = Object.hasOwn(metrics, name) ? metrics[name] : undefined;
  if (!found) return null;
  const goal = goalOf(name);
  return (goal === "min" ? found.min : goal === "max" ? found.max : found.last) ?? null;
}

/** The metrics that stand in the table: scores and losses of the newest versions first. */
export function mainMetrics(versions: readonly { metrics: Metrics }[], most: number): string[] {
  const names = [...new Set(versions.flatMap((version) => Object.keys(version.metrics)))];
  const rank = (name: string) => ({ max: 0, min: 1, none: 2 })[goalOf(name) ?? "none"] * 2 + (/^(val|valid|validation|eval|test)\b/i.test(name) ? 0 : 1);
  return names.sort((a, b) => rank(a) - rank(b) || a.localeCompare(b, "en", { numeric: true })).slice(0, most);
}

/** Which of two values is the better one: 0, 1, or neither. */
export function better(name: string, values: readonly (number | null)[]): number | null {
  const goal = goalOf(name);
  const [a, b] = values;
  if (goal === null || typeof a !== "number" || typeof b !== "number" || a === b) return null;
  return (goal === "min") === a < b ? 0 : 1;
}
