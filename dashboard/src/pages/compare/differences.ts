// What differs between manifests, path by path.

/** path → value, of everything that is no list and no mapping. */
function flat(value: unknown, path = "", into = new Map<string, string>()): Map<string, string> {
  if (Array.isArray(value)) value.forEach((item, at) => flat(item, `${path}[${at}]`, into));
  else if (value !== null && typeof value === "object") {
    for (const [key, item] of Object.entries(value)) flat(item, path ? `${path}.${key}` : key, into);
  } else if (value !== undefined) into.set(path, typeof value === "string" ? value : JSON.stringify(value));
  return into;
}

/** Rows of `name, value of each job` of all parameters that a job has logged. */
export function parameters(jobs: readonly { params?: Record<string, string> }[]): [string, (string | undefined)[]][] {
  const all = jobs.map((job) => new Map(Object.entries(job.params ?? {})));
  const names = [...new Set(all.flatMap((texts) => [...texts.keys()]))].sort();
  return names.map((name) => [name, all.map((texts) => texts.get(name))]);
}

/** Rows of `path, value of each job` where not all are the same; undefined: that manifest does not say. */
export function differences(manifests: readonly unknown[]): [string, (string | undefined)[]][] {
  const all = manifests.map((manifest) => flat(manifest));
  const paths = [...new Set(all.flatMap((values) => [...values.keys()]))].sort();
  return paths
    .map((path): [string, (string | undefined)[]] => [path, all.map((values) => values.get(path))])
    .filter(([, values]) => new Set(values).size > 1);
}
