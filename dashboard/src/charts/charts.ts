// Which charts there are for the series that jobs have: one for each of the users' metrics, a few for the system's.
import { size, value } from "../ui/format";
import { goalOf } from "./goal";
import type { Kind } from "./queries";
import type { Series } from "./lines";
import { phaseOf, titleOf } from "./phases";

type Format = (value: number | null | undefined) => string;

export interface Chart {
  title: string;
  /** As the API calls them. */
  names: string[];
  format: Format;
  /** Its axis goes in powers of two. */
  binary: boolean;
  /** What tells this series from the chart's others of the same learner. */
  part: (name: string) => string;
}

const bytes: Format = (amount) => (amount === null || amount === undefined ? "–" : size(amount));
const rate: Format = (amount) => (amount === null || amount === undefined ? "–" : `${size(amount)}/s`);
const unit =
  (mark: string): Format =>
  (amount) =>
    amount === null || amount === undefined ? "–" : `${value(Math.round(amount * 10) / 10)}${mark}`;

// In the order of the page. The GPUs of a learner share a chart.
const SYSTEM: [RegExp, string, Format, (found: RegExpMatchArray) => string][] = [
  [/^cpu_percent$/, "CPU (100 % = one core)", unit(" %"), () => ""],
  [/^memory(_limit)?_bytes$/, "Memory", bytes, (found) => (found[1] ? "limit" : "")],
  [/^gpu(\d+)_percent$/, "GPU utilisation", unit(" %"), (found) => `GPU ${found[1]}`],
  [/^gpu(\d+)_memory_bytes$/, "GPU memory", bytes, (found) => `GPU ${found[1]}`],
  [/^gpu(\d+)_temperature_c$/, "GPU temperature", unit(" °C"), (found) => `GPU ${found[1]}`],
  [/^gpu(\d+)_power_w$/, "GPU power", unit(" W"), (found) => `GPU ${found[1]}`],
  [/^net_(in|out)_bytes_per_s$/, "Network", rate, (found) => found[1] ?? ""],
  [/^disk_(read|write)_bytes_per_s$/, "Disk", rate, (found) => found[1] ?? ""],
  [/^disk_used_bytes$/, "Disk used by the learner", bytes, () => ""],
];

const bare = (name: string) => name.replace(/^system\//, "");

/** `together`: the same metric of training, validation and so on shares a chart. */
export function chartsOf(kind: Kind, series: readonly Series[], together = false): Chart[] {
  const names = [...new Set(series.map(({ name }) => name))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  if (kind === "user" && together) {
    const groups = new Map<string, string[]>();
    for (const name of names) groups.set(titleOf(name), [...(groups.get(titleOf(name)) ?? []), name]);
    const rank = (title: string) => ({ min: 0, max: 1, none: 2 })[goalOf(title) ?? "none"];
    return [...groups]
      .map(([title, its]) => ({ title, names: its, format: value, binary: false, part: phaseOf }))
      .sort((a, b) => rank(a.title) - rank(b.title));
  }
  if (kind === "user") return names.map((name) => ({ title: name, names: [name], format: value, binary: false, part: () => "" }));
  const charts: Chart[] = [];
  const left = new Set(names);
  for (const [pattern, title, format, part] of SYSTEM) {
    const found = names.filter((name) => pattern.test(bare(name)));
    if (!found.length) continue;
    found.forEach((name) => left.delete(name));
    const partOf = (name: string) => {
      const match = bare(name).match(pattern);
      return match ? part(match) : "";
    };
    charts.push({ title, names: found, format, binary: format === bytes || format === rate, part: partOf });
  }
  for (const name of left) charts.push({ title: bare(name), names: [name], format: value, binary: false, part: () => "" });
  return charts;
}
