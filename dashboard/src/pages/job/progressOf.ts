// How far a training is, where its last lines say so.
import { plain } from "../../ui/quoted";

export interface Progress {
  what: string;
  done: number;
  total: number;
}

const BAR = /\d+%\|[^|]*\|\s*(\d+)\/(\d+)\s*\[/; // tqdm
const COUNT = /\b(epoch|step|iteration|iter|batch|round)s?\b[ :=#[(]*(\d[\d,]*)\s*(?:\/|of)\s*(\d[\d,]*)/gi;

const number = (text: string | undefined) => Number((text ?? "").replaceAll(",", ""));

/** By the newest line that has a count and what it counts to. Where a line has several, as epochs and steps, the first. */
export function progressOf(lines: readonly string[]): Progress | null {
  for (const line of [...lines].reverse()) {
    const text = plain(line);
    const [count] = text.matchAll(COUNT);
    const bar = BAR.exec(text);
    const found = count
      ? { what: (count[1] ?? "").toLowerCase(), done: number(count[2]), total: number(count[3]) }
      : bar
        ? { what: "step", done: number(bar[1]), total: number(bar[2]) }
        : null;
    if (found && found.total > 0 && found.done <= found.total) return found;
  }
  return null;
}
