// What a metric's name says of it: whether small or large values are good, and the group it belongs to.
const LOSS = /\b(?:\w*loss|errors?|perplexity|ppl|nll|mse|mae|rmse|wer|fid)\b/i;
const SCORE = /\b(?:acc\w*|f1|auc\w*|m?iou|map|bleu\w*|rouge\w*|rewards?|scores?|top ?\d+|precision|recall|returns?)\b/i;

export const leaf = (name: string) => name.slice(name.lastIndexOf("/") + 1);

export function goalOf(name: string): "min" | "max" | null {
  const words = leaf(name).replace(/[_-]/g, " ");
  if (LOSS.test(words)) return "min";
  return SCORE.test(words) ? "max" : null;
}

/** Titles by what stands before their first slash; groups with a loss first, then those with a score. */
export function grouped<T extends { title: string }>(charts: readonly T[]): { name: string; charts: T[] }[] {
  const groups = new Map<string, T[]>();
  for (const chart of charts) {
    const slash = chart.title.indexOf("/");
    const name = slash < 0 ? "" : chart.title.slice(0, slash);
    groups.set(name, [...(groups.get(name) ?? []), chart]);
  }
  const rank = (group: readonly T[]) => {
    const goals = group.map((chart) => goalOf(chart.title));
    return goals.includes("min") ? 0 : goals.includes("max") ? 1 : 2;
  };
  return [...groups]
    .map(([name, members]) => ({ name, charts: members }))
    .sort((a, b) => rank(a.charts) - rank(b.charts) || a.name.localeCompare(b.name, "en", { numeric: true }));
}
