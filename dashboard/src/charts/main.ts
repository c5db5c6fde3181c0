// Which metrics matter: those that a manifest names as such are not known here, so names tell.

/** Where more is better; of every other metric less is. */
const MORE = /acc|f1|auc|precision|recall|bleu|rouge|\bmap\b|score|reward|return|r2|iou|dice|psnr|ssim|throughput|per_s/i;
/** Neither better nor worse. */
const NEITHER = /(^|[/_])(lr|learning_rate|epoch|step|norm|grad_norm|gpu_hours|time|seconds)$|_norm$/i;

export const goal = (name: string): "max" | "min" | null => (NEITHER.test(name) ? null : MORE.test(name) ? "max" : "min");

export const VALIDATION = /^(val|valid|validation|dev|eval|test)$/i;

/** The smaller, the more a metric tells of the training: losses and what is validated come first. */
function rank(name: string): number {
  const own = name.split("/").at(-1) ?? name;
  const validated = name.split(/[/_]/).some((part) => VALIDATION.test(part));
  if (goal(name) === null) return 9;
  if (/^loss$/i.test(own)) return validated ? 0 : 1;
  if (/^(acc|accuracy|f1|auc)/i.test(own)) return validated ? 2 : 3;
  if (/loss/i.test(own)) return 4;
  return validated ? 5 : 6;
}

/** The names, those first that tell most. */
export const byWorth = (names: readonly string[]): string[] =>
  [...names].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b, "en", { numeric: true }));

/** The best value that is known of a metric; null where none is better than another. */
export function best(name: string, of: { min: number | null; max: number | null }): number | null {
  const wanted = goal(name);
  return wanted === "max" ? of.max : wanted === "min" ? of.min : null;
}
