// Epochs as the x of a chart: the training's metric `epoch` says which step belongs to which epoch.
import { leaf } from "./goal";

export interface EpochScale {
  toEpoch: (step: number) => number;
  toStep: (epoch: number) => number;
}

export const isEpoch = (name: string) => leaf(name) === "epoch";

/** The scale of a job from the points of its epochs; null if there are fewer than two. */
export function epochScale(series: readonly { x: readonly number[]; last: readonly (number | null)[] }[]): EpochScale | null {
  const points = series.flatMap(({ x, last }) => x.flatMap((step, at) => (typeof last[at] === "number" ? [[step, last[at]] as const] : [])));
  points.sort((a, b) => a[0] - b[0]);
  const steps: number[] = [];
  const epochs: number[] = [];
  for (const [step, epoch] of points) {
    // Neither steps nor epochs go back: what a retry repeats counts once.
    if (steps.length && (step <= (steps.at(-1) ?? 0) || epoch < (epochs.at(-1) ?? 0))) continue;
    steps.push(step);
    epochs.push(epoch);
  }
  if (steps.length < 2) return null;
  return { toEpoch: (step) => between(step, steps, epochs), toStep: (epoch) => between(epoch, epochs, steps) };
}

/** The value of `to` at `x` of `from`, on straight lines through the points, which go on at both ends. */
function between(x: number, from: readonly number[], to: readonly number[]): number {
  let low = 0;
  let high = from.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((from[middle] ?? 0) <= x) low = middle;
    else high = middle;
  }
  const [x0 = 0, x1 = 0, y0 = 0, y1 = 0] = [from[low], from[high], to[low], to[high]];
  return x1 === x0 ? y0 : y0 + ((x - x0) * (y1 - y0)) / (x1 - x0);
}
