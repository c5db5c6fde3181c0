// Labels as people type them: key=value and key-, as `weft label` takes them.

export type LabelChanges = Record<string, string | null>;

/** The changes that a text means: entries at commas, semicolons or line ends. A text if an entry can't be read. */
export function readLabels(text: string): LabelChanges | string {
  const changes: LabelChanges = {};
  for (const entry of text.split(/[,;\n]/).map((part) => part.trim())) {
    if (!entry) continue;
    const equals = entry.indexOf("=");
    if (equals > 0) changes[entry.slice(0, equals).trim()] = entry.slice(equals + 1).trim();
    else if (equals < 0 && entry.length > 1 && entry.endsWith("-")) changes[entry.slice(0, -1)] = null;
    else return `“${entry}” is neither key=value, which sets a label, nor key-, which removes it.`;
  }
  return Object.keys(changes).length ? changes : "Type key=value to set a label, or key- to remove it.";
}
