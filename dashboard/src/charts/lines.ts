// From the API's buckets to the lines of a chart.
import type { components } from "../api/schema";

export type Series = components["schemas"]["SeriesView"];
export type Buckets = components["schemas"]["Buckets"];

/** One line of a chart: x ascending; null where a value is not finite. */
export interface Line {
  key: string;
  /** The metric, as the API calls it. */
  name?: string;
  label: string;
  color: string;
  dashed: boolean;
  x: number[];
  min: (number | null)[];
  max: (number | null)[];
  last: (number | null)[];
  /** Of a line that is zoomed to: its points over the whole range, from which it is smoothed. */
  whole?: { x: number[]; last: (number | null)[] };
}

/** Each is seen on white and on the dark surface alike (3:1 or more). */
const COLORS = [
  "#0f8f83",
  "#d9622b",
  "#3b82d6",
  "#b05fd0",
  "#a97a12",
  "#d64570",
  "#5c9440",
  "#7a78e0",
  "#8a8378",
  "#1791b0",
];
export const color = (at: number) => COLORS[at % COLORS.length] as string;

/** Exponential moving average that is not drawn to zero at its beginning. Gaps stay gaps. `weight` is 0 … 1. */
export function smoothed(values: readonly (number | null)[], weight: number): (number | null)[] {
  let sum = 0;
  let share = 1;
  return values.map((value) => {
    if (value === null) return null;
    sum = sum * weight + (1 - weight) * value;
    share *= weight;
    return sum / (1 - share);
  });
}

/** What a log scale can show. */
export const positive = (values: readonly (number | null)[]) =>
  values.map((value) => (value !== null && value > 0 ? value : null));
