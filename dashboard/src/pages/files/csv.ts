// Tables in text files: values that a comma, a semicolon or a tab separates, and the tables of MLflow.

export interface Sheet {
  head: string[];
  rows: string[][];
  /** Whether all values of a column are numbers or empty. */
  numeric: boolean[];
}

const SEPARATORS = [",", ";", "\t"];

export const isSheet = (name: string) => /\.(csv|tsv)$/i.test(name);

/** The first line is the head. `cut`: the text ends in the middle, so its last line is left out. */
export function readSheet(text: string, cut: boolean): Sheet {
  const separator = separatorOf(text);
  const lines = readRows(text.replace(/^\uFEFF/, ""), separator);
  if (cut) lines.pop();
  const width = Math.max(0, ...lines.map((line) => line.length));
  const [head = [], ...rows] = lines.map((line) => [...line, ...Array<string>(width - line.length).fill("")]);
  return sheetOf(head, rows);
}

/** A JSON file as MLflow's `log_table` and pandas' `to_json(orient="split")` write it; null: it is something else. */
export function readSplit(text: string): Sheet | null {
  let found: unknown;
  try {
    found = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof found !== "object" || found === null) return null;
  const { columns, data } = found as { columns?: unknown; data?: unknown };
  if (!Array.isArray(columns) || !Array.isArray(data) || !data.every(Array.isArray)) return null;
  const cell = (value: unknown) => (value === null ? "" : typeof value === "string" ? value : JSON.stringify(value));
  return sheetOf(
    columns.map(cell),
    data.map((row: unknown[]) => columns.map((_, at) => cell(row[at] ?? null))),
  );
}

function sheetOf(head: string[], rows: string[][]): Sheet {
  const numeric = head.map((_, at) => {
    const values = rows.map((row) => row[at]?.trim() ?? "").filter(Boolean);
    return values.length > 0 && values.every((value) => Number.isFinite(Number(value)) || /^[+-]?(nan|inf(inity)?)$/i.test(value));
  });
  return { head, rows, numeric };
}

/** The separator that the first line has most of; the values between quotes do not count. */
function separatorOf(text: string): string {
  const line = (text.split(/\r?\n/, 1)[0] ?? "").replace(/"[^"]*"/g, "");
  const count = (separator: string) => line.split(separator).length;
  return SEPARATORS.reduce((best, separator) => (count(separator) > count(best) ? separator : best));
}

/** As RFC 4180 has it: a value in quotes may have separators, line ends and doubled quotes. Empty lines are left out. */
function readRows(text: string, separator: string): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  let value = "";
  let quoted = false;
  const endValue = () => {
    row.push(value);
    value = "";
  };
  const endRow = () => {
    endValue();
    if (row.length > 1 || row[0] !== "") rows.push(row);
    row = [];
  };
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at] as string;
    if (quoted) {
      if (character !== '"') value += character;
      else if (text[at + 1] === '"') {
        value += '"';
        at += 1;
      } else quoted = false;
    } else if (character === '"' && value === "") quoted = true;
    else if (character === separator) endValue();
    else if (character === "\n") endRow();
    else if (character !== "\r" || text[at + 1] !== "\n") value += character;
  }
  endRow();
  return rows;
}

/** Rows by a column: numbers by size, texts by name; empty values last. */
export function sortRows(sheet: Sheet, column: number, down: boolean): string[][] {
  const sign = down ? -1 : 1;
  const compare = sheet.numeric[column]
    ? (a: string, b: string) => Number(a) - Number(b) || 0
    : (a: string, b: string) => a.localeCompare(b, "en", { numeric: true });
  return [...sheet.rows].sort((left, right) => {
    const [a, b] = [left[column] ?? "", right[column] ?? ""];
    if (a === "" || b === "") return Number(a === "") - Number(b === "");
    return sign * compare(a, b);
  });
}
