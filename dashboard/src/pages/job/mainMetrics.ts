// The metrics that matter most of those that a job reports, for its overview.
import type { Chart } from "../../charts/charts";
import { goalOf } from "../../charts/goal";
import { phaseOf, titleOf } from "../../charts/phases";
import type { JobDetail } from "../../api/types";
import { value } from "../../ui/format";

/** A chart of the overview: the same metric of training, validation and so on. */
export interface MainChart extends Chart {
  goal: "min" | "max" | null;
  /** The best value so far, and the metric that has it. */
  best: { name: string; value: number } | null;
}

const MOST = 3;
const MOST_LINES = 4;
const OTHERS = 4; // the rank of a metric of which nothing says that it matters

/** The metrics that the manifest's `evaluation_metrics` extracts from the log. */
function named(manifest: JobDetail["manifest"]): string[] {
  const groups = (manifest["evaluation_metrics"] as { groups?: Record<string, { scalars?: Record<string, unknown> }> } | undefined)?.groups;
  return Object.entries(groups ?? {}).flatMap(([group, { scalars }]) =>
    Object.keys(scalars ?? {}).map((name) => `${group}/${name}`),
  );
}

function rank(name: string, first: readonly string[]): number {
  if (first.includes(name)) return 0;
  const goal = goalOf(name);
  return goal === "min" ? 1 : goal === "max" ? 2 : OTHERS;
}

/** Up to three charts: what the manifest names, then losses, then scores; others only where there are none of these. */
export function mainCharts(job: Pick<JobDetail, "metrics" | "manifest">): MainChart[] {
  const metrics = job.metrics ?? {};
  const first = named(job.manifest);
  const groups = new Map<string, string[]>();
  for (const name of Object.keys(metrics)) {
    const title = titleOf(name);
    groups.set(title, [...(groups.get(title) ?? []), name]);
  }
  const ranked = [...groups].map(([title, names]) => ({
    title,
    names: names.slice(0, MOST_LINES),
    // Metrics of several phases before others, and those of the whole model before those of its parts.
    rank: Math.min(...names.map((name) => rank(name, first))) + (names.length > 1 ? 0 : 0.5) + 0.1 * title.split("/").length,
  }));
  ranked.sort((a, b) => a.rank - b.rank);
  const matter = ranked.filter((chart) => chart.rank < OTHERS);
  return (matter.length ? matter : ranked).slice(0, MOST).map(({ title, names }) => {
    const goal = goalOf(title);
    return { title, names, format: value, binary: false, part: phaseOf, goal, best: bestOf(names, goal, metrics) };
  });
}

/** Of validation, where it is measured: the best value of the training says little. */
function bestOf(names: readonly string[], goal: MainChart["goal"], metrics: NonNullable<JobDetail["metrics"]>): MainChart["best"] {
  if (!goal) return null;
  const name = names.find((other) => phaseOf(other) && !/^train/i.test(phaseOf(other))) ?? names[0];
  const best = name === undefined ? null : metrics[name]?.[goal];
  return name === undefined || best === null || best === undefined ? null : { name, value: best };
}
