// The best point of a chart.
import type { Line } from "./lines";

export interface Mark {
  x: number;
  y: number;
  color: string;
}

/** The first point that has the best value; null if it is not among these lines' points. */
export function bestMark(lines: readonly Line[], goal: "min" | "max", best: number): Mark | null {
  for (const line of lines) {
    const at = line[goal].indexOf(best);
    const x = line.x[at];
    if (at >= 0 && x !== undefined) return { x, y: best, color: line.color };
  }
  return null;
}
