// What a sweep's page reads from its trials.
import type { components } from "../../api/schema";
import type { Line } from "../../charts/lines";
import { color } from "../../charts/lines";
import { value } from "../../ui/format";

export type Sweep = components["schemas"]["SweepView"];
export type Trial = components["schemas"]["TrialView"];

export const over = (sweep: Pick<Sweep, "state">) => ["COMPLETED", "STOPPED", "FAILED"].includes(sweep.state);

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

/** A place from 0 to 1 on each parameter's axis: numbers by size, on a log axis if they span magnitudes; others by name. */
export function axisOf(trials: readonly Trial[], name: string): { place: (trial: Trial) => number | null; ends: [string, string] } {
  const found = trials.flatMap((trial) => trial.parameters[name] ?? []);
  if (found.length && found.every((entry) => typeof entry === "number")) {
    const low = Math.min(...found);
    const high = Math.max(...found);
    const log = low > 0 && high / low >= 50;
    const scale = (number: number) => (log ? Math.log(number) : number);
    const width = scale(high) - scale(low);
    return {
      place: (trial) => {
        const at = trial.parameters[name];
        return typeof at === "number" ? (width ? (scale(at) - scale(low)) / width : 0.5) : null;
      },
      ends: [value(low), value(high)],
    };
  }
  const names = [...new Set(found.map(String))].sort();
  return {
    place: (trial) => {
      const at = trial.parameters[name];
      return at === undefined ? null : names.length > 1 ? names.indexOf(String(at)) / (names.length - 1) : 0.5;
    },
    ends: [names[0] ?? "", names.length > 1 ? (names.at(-1) ?? "") : ""],
  };
}
