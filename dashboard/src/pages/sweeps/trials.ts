// What a sweep's page reads from its trials.
import type { components } from "../../api/schema";
import type { Line } from "../../charts/lines";
import { color } from "../../charts/lines";
import type { Point } from "../../charts/points";
import { value } from "../../ui/format";

export type Sweep = components["schemas"]["SweepView"];
export type Trial = components["schemas"]["TrialView"];

export const over = (sweep: Pick<Sweep, "state">) => ["COMPLETED", "STOPPED", "FAILED"].includes(sweep.state);

/** Whether a trial that has ended may go on. */
export const withRungs = (sweep: Pick<Sweep, "search">) => ["asha", "hyperband"].includes(sweep.search);

/** Whether some trials began with the checkpoints of other trials. */
export const haveParents = (trials: readonly Trial[]) => trials.some((trial) => typeof trial.parent === "number");

/** The names of the parameters, in the order of their first trial. */
export const parametersOf = (trials: readonly Trial[]): string[] => [
  ...new Set(trials.flatMap((trial) => Object.keys(trial.parameters))),
];

export const shown = (parameter: Trial["parameters"][string] | undefined): string =>
  parameter === undefined ? "–" : typeof parameter === "number" ? value(parameter) : String(parameter);

/** Best first; those without a value after them, in their order. */
export function bestFirst(trials: readonly Trial[], goal: string): Trial[] {
  const sign = goal === "max" ? -1 : 1;
  return [...trials].sort((a, b) => {
    if (a.value === null || b.value === null) return Number(a.value === null) - Number(b.value === null) || a.number - b.number;
    return sign * (a.value - b.value) || a.number - b.number;
  });
}

/** Two lines over the trials' numbers: the value of each, and the best one so far. */
export function valueLines(trials: readonly Trial[], goal: string): Line[] {
  const valued = trials.filter((trial) => trial.value !== null).sort((a, b) => a.number - b.number);
  if (!valued.length) return [];
  const better = goal === "max" ? Math.max : Math.min;
  const x = valued.map((trial) => trial.number);
  const values = valued.map((trial) => trial.value as number);
  const best = values.map((_, at) => better(...values.slice(0, at + 1)));
  const line = (key: string, label: string, at: number, of: number[], dashed: boolean): Line => ({
    key,
    label,
    color: color(at),
    dashed,
    x,
    min: of,
    max: of,
    last: of,
  });
  return [line("value", "each trial", 8, values, true), line("best", "best so far", 0, best, false)];
}

/** The trials with a value as points, the best first: their parameters, and then the value. */
export function pointsOf(sweep: Sweep, trials: readonly Trial[]): { names: string[]; points: Point[] } {
  const valued = bestFirst(trials, sweep.goal).filter((trial) => trial.value !== null);
  const parameters = parametersOf(valued);
  const values = valued.map((trial) => trial.value as number);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return {
    names: [...parameters, sweep.metric],
    points: valued.map((trial) => {
      const place = high > low ? ((trial.value as number) - low) / (high - low) : 0.5;
      return {
        key: String(trial.number),
        label: `trial ${trial.number}: ${value(trial.value)}`,
        at: [...parameters.map((name) => trial.parameters[name]), trial.value],
        good: sweep.goal === "max" ? place : 1 - place,
        best: trial.number === sweep.best?.number,
      };
    }),
  };
}
