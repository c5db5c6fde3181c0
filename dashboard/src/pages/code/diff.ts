// What differs between two jobs' code: files, and the lines of a file.
import { structuredPatch } from "diff";

interface Listed {
  path: string;
  size: number;
  crc32: string;
}

export interface Changed {
  path: string;
  kind: "added" | "removed" | "changed";
}

/** Files of `mine` that `other` lacks are added. */
export function changedFiles(other: readonly Listed[], mine: readonly Listed[]): Changed[] {
  const before = new Map(other.map((file) => [file.path, file]));
  const after = new Map(mine.map((file) => [file.path, file]));
  const paths = [...new Set([...before.keys(), ...after.keys()])].sort();
  return paths.flatMap((path): Changed[] => {
    const [old, now] = [before.get(path), after.get(path)];
    if (!old) return [{ path, kind: "added" }];
    if (!now) return [{ path, kind: "removed" }];
    return old.size === now.size && old.crc32 === now.crc32 ? [] : [{ path, kind: "changed" }];
  });
}

export interface DiffLine {
  kind: "same" | "added" | "removed" | "gap";
  text: string;
  /** The line's number in the text before, and in the text after. */
  old?: number;
  now?: number;
}

const CONTEXT = 4; // lines around a change
const PATIENCE = 2000; // ms

/** The changed lines with some around them; null if the texts differ too much to be compared in time. */
export function diffLines(before: string, after: string): DiffLine[] | null {
  const patch = structuredPatch("", "", before, after, "", "", { context: CONTEXT, timeout: PATIENCE });
  if (!patch) return null;
  return patch.hunks.flatMap((hunk, at) => {
    let old = hunk.oldStart;
    let now = hunk.newStart;
    const lines: DiffLine[] = at > 0 || hunk.oldStart > 1 ? [{ kind: "gap", text: `line ${hunk.newStart}` }] : [];
    for (const line of hunk.lines) {
      const text = line.slice(1);
      if (line.startsWith("+")) lines.push({ kind: "added", text, now: now++ });
      else if (line.startsWith("-")) lines.push({ kind: "removed", text, old: old++ });
      else if (line.startsWith("\\")) lines.push({ kind: "gap", text: "no line end at the file's end" });
      else lines.push({ kind: "same", text, old: old++, now: now++ });
    }
    return lines;
  });
}
