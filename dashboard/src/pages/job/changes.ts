// What was edited in a manifest, as the `set` of a rerun: a path and a plain value for each change.
import { isMap, isScalar, isSeq, type Node, parseDocument } from "yaml";

export interface Changes {
  set: Record<string, string>;
  /** One for people for each change. */
  shown: string[];
  /** Why it can't be submitted like this. */
  problems: string[];
}

export function changesBetween(before: string, after: string): Changes {
  const document = parseDocument(after, { prettyErrors: true });
  const problems = document.errors.map((error) => error.message);
  if (problems.length) return { set: {}, shown: [], problems };
  const old = leaves(parseDocument(before).contents as Node | null);
  const now = leaves(document.contents as Node | null);
  const changes: Changes = { set: {}, shown: [], problems };
  for (const [path, value] of now) {
    const was = old.get(path);
    if (was === value) continue;
    changes.set[path] = value;
    changes.shown.push(was === undefined ? `${path}: ${value}` : `${path}: ${was} → ${value}`);
  }
  for (const [path, value] of old) {
    if (now.has(path) || [...now.keys()].some((other) => path === "" || other.startsWith(`${path}.`))) continue;
    if (/\[\d+\]|^(labels|env|secrets)\./.test(path)) {
      problems.push(`${path}: a rerun can change it, but not take it away; submit a new job instead`);
    } else {
      // An empty value means the default.
      changes.set[path] = "";
      changes.shown.push(`${path}: ${value} → the default`);
    }
  }
  return changes;
}

/** Every plain value by its path, as the API's `set` writes paths: data_stores[0].training_data.container. */
function leaves(node: Node | null, path = "", found = new Map<string, string>()): Map<string, string> {
  if (isMap(node)) {
    for (const { key, value } of node.items) {
      const name = isScalar(key) ? String(key.value) : String(key);
      leaves(value as Node | null, path ? `${path}.${name}` : name, found);
    }
  } else if (isSeq(node)) {
    node.items.forEach((item, at) => leaves(item as Node | null, `${path}[${at}]`, found));
  } else if (isScalar(node)) {
    // As it is written: 1.10 stays a version, not a number.
    found.set(path, node.value === null ? "" : (node.source ?? String(node.value)));
  }
  return found;
}
