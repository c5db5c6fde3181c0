// The charts that stand above all others, in an order of their own. The browser remembers them for other jobs.
const KEY = "weft-chart-pins";

export function storedPins(): string[] {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter((title): title is string => typeof title === "string") : [];
  } catch {
    return [];
  }
}

export function storePins(titles: readonly string[]): void {
  try {
    localStorage.setItem(KEY, JSON.stringify(titles));
  } catch {
    // A browser that keeps nothing: the URL has them.
  }
}

/** With this title, or without it if it is there. */
export const togglePin = (pins: readonly string[], title: string) =>
  pins.includes(title) ? pins.filter((other) => other !== title) : [...pins, title];

/** One place to the left (-1) or to the right (1) among those that are shown. */
export function movePin(pins: readonly string[], title: string, by: -1 | 1, shown: (title: string) => boolean): string[] {
  const after = [...pins];
  const from = after.indexOf(title);
  let to = from + by;
  while (to >= 0 && to < after.length && !shown(after[to] ?? "")) to += by;
  if (from < 0 || to < 0 || to >= after.length) return after;
  after.splice(from, 1);
  after.splice(to, 0, title);
  return after;
}

/** The charts that are pinned, in the order of the pins, and the others. */
export function splitPinned<T extends { title: string }>(charts: readonly T[], pins: readonly string[]): [T[], T[]] {
  const pinned = pins.flatMap((title) => charts.find((chart) => chart.title === title) ?? []);
  return [pinned, charts.filter((chart) => !pins.includes(chart.title))];
}
