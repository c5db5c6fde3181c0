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

/** What part of a job each path of a manifest is about; the first that fits. */
const TOPICS: readonly [string, RegExp][] = [
  ["Code", /^(repo|framework\.command)\b/],
  ["Parameters", /^(parameters|sweep)\b/],
  ["Environment", /^(framework|env|packages|secrets|image)\b/],
  ["Data", /^(data_stores|datasets|pretrained|data)/],
  ["Resources", /^(engine|learners|elastic|resources|priority|cpus|gpus|memory|retries|time)/],
];

/** Rows in groups by their topic, in the order of topics; what fits none is last. */
export function byTopic<Row extends readonly [string, ...unknown[]]>(rows: readonly Row[]): { topic: string; rows: Row[] }[] {
  const topicOf = ([path]: Row) => TOPICS.find(([, pattern]) => pattern.test(path))?.[0] ?? "Others";
  return [...TOPICS.map(([topic]) => topic), "Others"]
    .map((topic) => ({ topic, rows: rows.filter((row) => topicOf(row) === topic) }))
    .filter(({ rows }) => rows.length > 0);
}

/** Whether not all of these are the same. */
export const differs = (values: readonly unknown[]) => new Set(values).size > 1;
