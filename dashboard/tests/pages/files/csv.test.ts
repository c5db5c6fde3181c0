import { expect, test } from "vitest";

import { isSheet, readSheet, readSplit, sortRows } from "../../../src/pages/files/csv";

test("quotes, line ends and short lines", () => {
  const text = '\uFEFFname,loss,note\r\n"a,b",0.5,"says ""so""\nand more"\r\nc,1e-3\r\n\r\n';
  expect(readSheet(text, false)).toEqual({
    head: ["name", "loss", "note"],
    rows: [
      ["a,b", "0.5", 'says "so"\nand more'],
      ["c", "1e-3", ""],
    ],
    numeric: [false, true, false],
  });
});

test("the tables of MLflow", () => {
  const table = { columns: ["epoch", "said"], data: [[1, "a"], [2, { b: null }], [3]] };
  expect(readSplit(JSON.stringify(table))).toEqual({
    head: ["epoch", "said"],
    rows: [["1", "a"], ["2", '{"b":null}'], ["3", ""]],
    numeric: [true, false],
  });
  for (const other of ["{", "[]", "1", '{"columns": 1}', '{"columns": [], "data": [1]}']) expect(readSplit(other)).toBeNull();
});

test("semicolons and tabs; what is cut loses its last line", () => {
  expect(readSheet("a;b\n1,5;x\n2,5;", true).rows).toEqual([["1,5", "x"]]);
  expect(readSheet('"a;b"\tc\n1\tnan', false)).toMatchObject({ head: ["a;b", "c"], numeric: [true, true] });
  expect(readSheet("", false)).toEqual({ head: [], rows: [], numeric: [] });
});

test("numbers are sorted by size, and empty values are last", () => {
  const sheet = readSheet("n,t\n10,b10\n,b2\n9,b1", false);
  const firsts = (column: number, down: boolean) => sortRows(sheet, column, down).map((row) => row[column]);
  expect(firsts(0, false)).toEqual(["9", "10", ""]);
  expect(firsts(0, true)).toEqual(["10", "9", ""]);
  expect(firsts(1, false)).toEqual(["b1", "b2", "b10"]);
});

test("by the ending of its name", () => {
  expect(["a.csv", "b.TSV", "c.csv.gz", "csv"].map(isSheet)).toEqual([true, true, false, false]);
});
