// Search parameters as people write them (?state=FAILED&state=HALTED&q=mnist), instead of the router's JSON.
type RawSearch = Record<string, string | string[]>;

export function parseSearch(text: string): RawSearch {
  const found: RawSearch = {};
  for (const [name, value] of new URLSearchParams(text)) {
    const before = found[name];
    if (before === undefined) found[name] = value;
    else found[name] = Array.isArray(before) ? [...before, value] : [before, value];
  }
  return found;
}

export function stringifySearch(search: Record<string, unknown>): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(search)) {
    for (const item of Array.isArray(value) ? value : [value]) {
      if (item !== undefined && item !== null && item !== "") params.append(name, String(item));
    }
  }
  const text = params.toString();
  return text ? `?${text}` : "";
}

/** For validateSearch: the texts under `name`. */
export function texts(value: unknown): string[] | undefined {
  const list = Array.isArray(value) ? value : value === undefined || value === "" ? [] : [value];
  return list.length ? list.map(String) : undefined;
}

export function text(value: unknown): string | undefined {
  return typeof value === "string" && value ? value : undefined;
}

export function whole(value: unknown): number | undefined {
  const number = typeof value === "number" ? value : typeof value === "string" && value ? Number(value) : NaN;
  return Number.isInteger(number) && number >= 0 ? number : undefined;
}
