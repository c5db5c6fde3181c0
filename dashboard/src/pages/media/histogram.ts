// Histograms as bars of the same width. Writers choose the borders: PyTorch's grow by a tenth each.

export interface Bar {
  from: number;
  to: number;
  count: number;
}

const BARS = 40;

/** The same counts in bars of the same width; a bar's count is spread evenly over its width. */
export function rebinned(bars: readonly Bar[], most = BARS): Bar[] {
  const known = bars.filter(({ from, to, count }) => [from, to, count].every(Number.isFinite) && to >= from);
  if (!known.length) return [];
  const least = Math.min(...known.map(({ from }) => from));
  const width = (Math.max(...known.map(({ to }) => to)) - least) / most;
  if (width <= 0) return [{ from: least, to: least, count: known.reduce((sum, { count }) => sum + count, 0) }];
  const counts = Array<number>(most).fill(0);
  const place = (x: number) => Math.min(most - 1, Math.max(0, Math.floor((x - least) / width)));
  for (const { from, to, count } of known) {
    const [first, last] = [place(from), place(to)];
    for (let at = first; at <= last; at++) {
      const low = Math.max(from, least + at * width);
      const high = Math.min(to, least + (at + 1) * width);
      const share = to > from ? Math.max(0, high - low) / (to - from) : 1 / (last - first + 1);
      counts[at] = (counts[at] ?? 0) + count * share;
    }
  }
  return counts.map((count, at) => ({ from: least + at * width, to: least + (at + 1) * width, count }));
}
