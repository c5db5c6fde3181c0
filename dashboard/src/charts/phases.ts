// The part of the training that a metric belongs to, where its name says so: val/loss, val_loss.
import { leaf } from "./goal";

const PHASE = /^(?:train(?:ing)?|val(?:id|idation)?|eval(?:uation)?|test|dev)$/i;
const prefix = (name: string) => name.slice(0, Math.max(0, name.lastIndexOf("/")));

/** The metric's name without the phase, under which the phases share a chart. */
export function titleOf(name: string): string {
  const [first = "", ...rest] = leaf(name).split("_");
  if (!prefix(name) && rest.length && PHASE.test(first)) return rest.join("_");
  return PHASE.test(prefix(name)) ? leaf(name) : name;
}

export const phaseOf = (name: string) => (titleOf(name) === name ? "" : prefix(name) || (name.split("_")[0] ?? ""));
