const PART = 25;

/** The list in parts, the last of which may be smaller. */
export function partsOf<T>(list: readonly T[]): T[][] {
  const parts: T[][] = [];
  for (let start = 0; start < list.length; start += PART) parts.push(list.slice(start, start + PART));
  return parts;
}
