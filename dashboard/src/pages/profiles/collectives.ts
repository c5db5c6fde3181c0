// When the ranks of a gang entered their collectives: a line for each, with the process group, the collective's number in
// it, the operation, and the time in ns.

export interface Latecomer {
  rank: number;
  /** The share of the collectives that it entered last. */
  last: number;
  /** The median of `late`. */
  median: number;
  /** By collective, ms after the first rank. */
  late: number[];
}

export interface Collectives {
  group: string;
  numbers: number[];
  /** The latest first. */
  ranks: Latecomer[];
}

const ENTRY = /^(\S+) (\d{1,18}) \S+ (\d{1,20})$/;

/** Compare the ranks in the process group that has the most of them; null: no collective is known of two ranks. */
export function latest(texts: ReadonlyMap<number, string>): Collectives | null {
  const groups = new Map<string, Map<number, Map<number, number>>>();
  for (const [rank, text] of texts) {
    for (const line of text.split("\n")) {
      const [, group, number, at] = ENTRY.exec(line) ?? [];
      if (group === undefined) continue;
      const ranks = groups.get(group) ?? new Map<number, Map<number, number>>();
      const entries = ranks.get(rank) ?? new Map<number, number>();
      groups.set(group, ranks.set(rank, entries.set(Number(number), Number(at) / 1e6)));
    }
  }
  const shared = [...groups]
    .filter(([, ranks]) => ranks.size > 1)
    .map(([group, ranks]) => ({ group, ranks, numbers: common([...ranks.values()]) }))
    .filter(({ numbers }) => numbers.length > 0)
    .sort((a, b) => b.ranks.size - a.ranks.size || b.numbers.length - a.numbers.length)[0];
  if (!shared) return null;
  const { group } = shared;
  // Ranks enter the first collective of a group as soon as they have started.
  const later = shared.numbers.filter((number) => number > 1);
  const numbers = later.length > 0 ? later : shared.numbers;
  const ranks = [...shared.ranks].map(([rank, entries]) => ({ rank, at: numbers.map((number) => entries.get(number) ?? 0) }));
  const first = numbers.map((_, n) => Math.min(...ranks.map(({ at }) => at[n] ?? 0)));
  const final = numbers.map((_, n) => Math.max(...ranks.map(({ at }) => at[n] ?? 0)));
  const found = ranks.map(({ rank, at }) => {
    const late = at.map((time, n) => time - (first[n] ?? 0));
    return { rank, last: at.filter((time, n) => time === final[n]).length / numbers.length, median: median(late), late };
  });
  return { group, numbers, ranks: found.sort((a, b) => b.median - a.median || a.rank - b.rank) };
}

function common(ranks: Map<number, number>[]): number[] {
  const [first, ...others] = ranks;
  return [...(first?.keys() ?? [])].filter((number) => others.every((other) => other.has(number))).sort((a, b) => a - b);
}

function median(values: number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length / 2;
  return ((sorted[Math.ceil(half) - 1] ?? 0) + (sorted[Math.floor(half)] ?? 0)) / 2;
}
