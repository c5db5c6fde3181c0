// Jobs or trials as points in a space of parameters and values.
import { value } from "../ui/format";

export type Coordinate = number | string | boolean | null | undefined;

export interface Point {
  key: string;
  label: string;
  /** In the order of the names. */
  at: readonly Coordinate[];
  /** A colour of its own. */
  color?: string;
  /** From 0 to 1: how good it is. Good points are easier to see. */
  good: number;
  best: boolean;
}

export interface Scale {
  /** From 0 to 1. */
  place: (at: Coordinate) => number | null;
  ends: [string, string];
}

const rounded = (number: number) => value(Number(number.toPrecision(3)));

/** Numbers by size, on a log scale if they span magnitudes; other values by name. */
export function scaleOf(all: readonly Coordinate[]): Scale {
  const found = all.filter((at) => at !== null && at !== undefined);
  const numbers = found.filter((at) => typeof at === "number");
  if (found.length && numbers.length === found.length) {
    const low = Math.min(...numbers);
    const high = Math.max(...numbers);
    const log = low > 0 && high / low >= 50;
    const scale = (number: number) => (log ? Math.log(number) : number);
    const width = scale(high) - scale(low);
    return {
      place: (at) => (typeof at !== "number" ? null : width ? (scale(at) - scale(low)) / width : 0.5),
      ends: [rounded(low), rounded(high)],
    };
  }
  const names = [...new Set(found.map(String))].sort();
  return {
    place: (at) =>
      at === null || at === undefined ? null : names.length > 1 ? names.indexOf(String(at)) / (names.length - 1) : 0.5,
    ends: [names[0] ?? "", names.length > 1 ? (names.at(-1) ?? "") : ""],
  };
}

/** A text that a number stands in, as the number. */
export function numeric(text: string | undefined): Coordinate {
  if (text === undefined || text.trim() === "") return text;
  const number = Number(text);
  return Number.isFinite(number) ? number : text;
}

const LONG = 14;
/** A text that fits beside an axis. */
export const short = (text: string) => (text.length > LONG ? `${text.slice(0, LONG - 1)}…` : text);
