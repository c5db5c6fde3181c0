// What programs print, where a page quotes some lines of it.
import { parseAnsi } from "../pages/logs/ansi";

/** The line as it reads, without what only a terminal understands. */
export const plain = (line: string) =>
  parseAnsi(line)
    .map((piece) => piece.text)
    .join("");

/** A reason and the lines of the log under it, as the API has them in one text. */
export function splitReason(reason: string): { headline: string; lines: string[] } {
  const [first = "", ...lines] = reason.split("\n");
  return { headline: first.replace(/; its last lines:$/, ""), lines: lines.map((line) => line.replace(/^ {2}/, "")) };
}
