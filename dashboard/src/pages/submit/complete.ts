// Completion in the editor of a manifest, from its JSON schema: the keys that a place takes, and the values of a key.

export interface Schema {
  type?: string | string[];
  description?: string;
  enum?: (string | number | boolean)[];
  properties?: Record<string, Schema>;
  items?: Schema;
  anyOf?: Schema[];
  oneOf?: Schema[];
}

export interface Suggestion {
  text: string;
  /** What is inserted in place of the text before the cursor, from `from` on. */
  insert: string;
  detail: string;
}

export interface Suggestions {
  from: number;
  options: Suggestion[];
}

const MOST = 12;
const KEY = /^(\s*(?:- +)*)([\w-]*)$/;
const VALUE = /^(\s*(?:- +)*)([\w-]+): +([\w./-]*)$/;

/** What may be written at the cursor; null if nothing is known to fit. */
export function suggestions(schema: Schema, text: string, cursor: number): Suggestions | null {
  const lines = text.slice(0, cursor).split("\n");
  const line = lines.pop() ?? "";
  const rest = (text.slice(cursor).split("\n", 1)[0] ?? "").trimEnd();
  if (rest !== "") return null;
  const value = VALUE.exec(line);
  if (value) {
    const [, lead = "", key = "", begun = ""] = value;
    const found = at(schema, [...parents(lines, lead), key]);
    const values = found.flatMap((part) => part.enum ?? (typed(part, "boolean") && !typed(part, "string") ? [true, false] : []));
    return offer(values.map((known) => ({ text: String(known), insert: String(known), detail: "" })), begun, cursor);
  }
  const match = KEY.exec(line);
  if (!match) return null;
  const [, lead = "", begun = ""] = match;
  const path = parents(lines, lead);
  const taken = siblings(text.split("\n"), lines.length, lead.length);
  const keys = at(schema, path).flatMap((part) => Object.entries(part.properties ?? {}));
  const options = keys
    .filter(([name]) => !taken.has(name))
    .map(([name, of]) => ({ text: name, insert: `${name}:${nested(of) ? `\n${" ".repeat(lead.length + 2)}` : " "}`, detail: of.description ?? "" }));
  return offer(options, begun, cursor);
}

function offer(options: Suggestion[], begun: string, cursor: number): Suggestions | null {
  const wanted = begun.toLowerCase();
  const fitting = options.filter(({ text }) => text.toLowerCase().startsWith(wanted) && text !== begun);
  const inside = wanted.length > 1 ? options.filter(({ text }) => text.toLowerCase().indexOf(wanted) > 0) : [];
  const found = [...fitting, ...inside].slice(0, MOST);
  return found.length ? { from: cursor - begun.length, options: found } : null;
}

const typed = (schema: Schema, type: string) => [schema.type].flat().includes(type);
const parts = (schema: Schema): Schema[] => [schema, ...(schema.anyOf ?? []).flatMap(parts), ...(schema.oneOf ?? []).flatMap(parts)];
/** Only mappings: a list or a plain value begins on the key's line. */
const nested = (schema: Schema) => parts(schema).some((part) => part.properties) && !parts(schema).some((part) => typed(part, "string"));

/** The parts of the schema at a path of keys; lists are passed through. */
function at(schema: Schema, path: readonly string[]): Schema[] {
  let found = parts(schema);
  for (const key of path) {
    found = found.flatMap((part) => part.properties?.[key] ?? []).flatMap(parts);
    found = found.flatMap((part) => (part.items ? [part, ...parts(part.items)] : [part]));
  }
  return found;
}

/** How deep a line's key is, in columns: `- ` counts as indentation. */
const depth = (line: string) => /^\s*(?:- +)*/.exec(line)?.[0].length ?? 0;

/** The keys above the last line that a line with this beginning is in. */
function parents(lines: readonly string[], lead: string): string[] {
  const path: string[] = [];
  let column = lead.length;
  for (const line of [...lines].reverse()) {
    const key = /^\s*(?:- +)*([\w-]+):\s*(?:#.*)?$/.exec(line)?.[1];
    const here = depth(line);
    if (line.trim() === "" || line.trim().startsWith("#")) continue;
    // A list may begin in its key's own column.
    const list = lead.includes("-") && here === lead.indexOf("-") && path.length === 0 && !line.trim().startsWith("-");
    if (here < column || list) {
      if (key !== undefined) path.unshift(key);
      else if (!line.includes(": ")) return path;
      column = here;
    }
    if (column === 0) break;
  }
  return path;
}

/** The keys beside a place, which can't be given twice. */
function siblings(lines: readonly string[], place: number, column: number): Set<string> {
  const found = new Set<string>();
  const inList = column > 0;
  const walk = (indexes: number[], up: boolean) => {
    for (const index of indexes) {
      const line = lines[index] ?? "";
      if (line.trim() === "" || line.trim().startsWith("#")) continue;
      if (depth(line) < column) return;
      if (depth(line) === column) {
        const begins = inList && line.trimStart().startsWith("-"); // an item of a list
        if (begins && !up) return;
        const key = /^\s*(?:- +)*([\w-]+):/.exec(line)?.[1];
        if (key) found.add(key);
        if (begins) return;
      }
    }
  };
  const first = (lines[place] ?? "").trimStart().startsWith("-");
  if (!first) walk(Array.from({ length: place }, (_, back) => place - 1 - back), true);
  walk(Array.from({ length: Math.max(0, lines.length - place - 1) }, (_, on) => place + 1 + on), false);
  return found;
}
