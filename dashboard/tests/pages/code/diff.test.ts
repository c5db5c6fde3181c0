import { expect, test } from "vitest";

import { changedFiles, diffLines } from "../../../src/pages/code/diff";

test("files are compared by their contents, not only by their sizes", () => {
  const file = (path: string, size: number, crc32: string) => ({ path, size, crc32 });
  const other = [file("a.py", 3, "01"), file("b.py", 3, "02"), file("c.py", 3, "03")];
  const mine = [file("a.py", 3, "01"), file("b.py", 3, "ff"), file("d.py", 3, "03")];
  expect(changedFiles(other, mine)).toEqual([
    { path: "b.py", kind: "changed" },
    { path: "c.py", kind: "removed" },
    { path: "d.py", kind: "added" },
  ]);
  expect(changedFiles(mine, mine)).toEqual([]);
});

test("changed lines stand among their neighbours, with both numbers", () => {
  const before = Array.from({ length: 20 }, (_, at) => `line ${at + 1}`).join("\n") + "\n";
  const lines = diffLines(before, before.replace("line 12", "another") + "end\n");
  expect(lines?.filter(({ kind }) => kind !== "same")).toEqual([
    { kind: "gap", text: "line 8" },
    { kind: "removed", text: "line 12", old: 12 },
    { kind: "added", text: "another", now: 12 },
    { kind: "added", text: "end", now: 21 },
  ]);
  expect(lines?.find(({ kind }) => kind === "same")).toEqual({ kind: "same", text: "line 8", old: 8, now: 8 });
  expect(diffLines(before, before)).toEqual([]);
});

test("a new file is added lines only", () => {
  expect(diffLines("", "a\nb\n")).toEqual([
    { kind: "added", text: "a", now: 1 },
    { kind: "added", text: "b", now: 2 },
  ]);
});
