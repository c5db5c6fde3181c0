// What a page of charts shows is all in its URL.
import { text, texts } from "../app/urls";

/** step: the training's own count; epoch: the value of its metric `epoch`; time: the clock; elapsed: seconds since the job's first point. */
export type Axis = "step" | "epoch" | "time" | "elapsed";

export interface ChartSearch {
  x?: Axis | undefined;
  /** The range that is zoomed to, in units of x; both or none. */
  from?: number | undefined;
  to?: number | undefined;
  log?: "1" | undefined;
  /** Weight of what came before in the exponential moving average, in percent. */
  smooth?: number | undefined;
  learner?: string[] | undefined;
  attempt?: string[] | undefined;
  /** Part of a metric's name. */
  q?: string | undefined;
  /** Other jobs, laid over this one. */
  with?: string[] | undefined;
  /** Training and validation share charts. */
  together?: "1" | undefined;
  /** Titles of the charts that stand above the others; if there are none, those that the browser remembers. */
  pin?: string[] | undefined;
}

export const MOST_JOBS = 10;
/** The change of a search that shows the whole range again. */
export const NO_ZOOM = { from: undefined, to: undefined };

const number = (value: unknown) => {
  const found = typeof value === "string" && value !== "" ? Number(value) : typeof value === "number" ? value : NaN;
  return Number.isFinite(found) ? found : undefined;
};

export function readChartSearch(search: Record<string, unknown>): ChartSearch {
  const found: ChartSearch = {};
  const x = text(search["x"]);
  if (x === "step" || x === "epoch" || x === "time" || x === "elapsed") found.x = x;
  const [from, to] = [number(search["from"]), number(search["to"])];
  if (from !== undefined && to !== undefined && from < to) Object.assign(found, { from, to });
  if (String(search["log"]) === "1") found.log = "1";
  if (String(search["together"]) === "1") found.together = "1";
  const pin = texts(search["pin"]);
  if (pin) found.pin = [...new Set(pin)];
  const smooth = number(search["smooth"]);
  if (smooth && smooth > 0 && smooth < 100) found.smooth = Math.round(smooth);
  const learner = texts(search["learner"]);
  if (learner) found.learner = learner;
  const attempt = texts(search["attempt"]);
  if (attempt) found.attempt = attempt;
  const q = text(search["q"]);
  if (q) found.q = q;
  const others = texts(search["with"]);
  if (others) found.with = [...new Set(others)].slice(0, MOST_JOBS - 1);
  return found;
}
