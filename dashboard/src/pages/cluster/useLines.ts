// The lines of the chart of the engines' use.
import type { components } from "../../api/schema";
import { color, type Line } from "../../charts/lines";

export type EngineUse = components["schemas"]["EngineUse"];

/** A line of each engine; of GPUs, only of engines on which a GPU was held. */
export function useLinesOf(engines: readonly EngineUse[], of: "gpus" | "cpus"): Line[] {
  return engines
    .map((engine, at) => {
      const amounts = engine.points.map((point) => point[of]);
      const x = engine.points.map((point) => new Date(point.at).getTime());
      return { key: engine.name, label: engine.name, color: color(at), dashed: false, x, min: amounts, max: amounts, last: amounts };
    })
    .filter((line) => of === "cpus" || line.last.some((amount) => amount > 0));
}
