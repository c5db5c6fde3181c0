// What a job has shown over its steps: the images, histograms and texts of one name.
import type { Item, Medium } from "./eventFile";

export interface Step {
  step: number;
  shown: Medium | { kind: "file"; path: string };
}

export interface Series {
  name: string;
  /** By step, each once. */
  steps: Step[];
}

interface Entry {
  name: string;
  step: number;
  at: number;
  shown: Step["shown"];
}

export const isEventFile = (path: string) => /(^|\/)[^/]*tfevents[^/]*$/.test(path);

// As MLflow's `log_image(image, key=…, step=…)` names its artifacts; of each image, there is a smaller copy, too.
const MLFLOW = /^(.*\/)?images\/([^/]+?)[%+]step[%+](\d+)[%+]timestamp[%+](\d+)[%+][^/%+]+\.png$/;
// `samples/step_100.png`, `epoch3.md`, `00042.jpg`.
const NUMBERED = /^(.*\/)?(|[^/]*?(?:^|[^a-z])(?:step|epoch|iter|iteration)[-_=]?)(\d+)(\.(?:png|jpe?g|gif|webp|bmp|md|txt|csv|tsv))$/i;

/** The series of event files, by their paths, and of the job's other files. */
export function seriesOf(files: readonly { path: string; modified: string }[], events: ReadonlyMap<string, readonly Item[]>): Series[] {
  const entries: Entry[] = [];
  for (const [path, items] of events) {
    const folder = path.split("/").slice(0, -1).join("/");
    for (const { tag, step, at, medium } of items) {
      entries.push({ name: folder ? `${folder}/${tag}` : tag, step, at, shown: medium });
    }
  }
  for (const file of files) {
    const named = nameOf(file.path);
    if (named) entries.push({ ...named, at: Date.parse(file.modified) / 1000, shown: { kind: "file", path: file.path } });
  }
  // A step that was repeated, by another attempt for example, shows the newest.
  const series = new Map<string, Map<number, Step>>();
  for (const { name, step, shown } of entries.sort((a, b) => a.at - b.at)) {
    const steps = series.get(name) ?? new Map<number, Step>();
    series.set(name, steps.set(step, { step, shown }));
  }
  return [...series]
    .map(([name, steps]) => ({ name, steps: [...steps.values()].sort((a, b) => a.step - b.step) }))
    .filter(({ steps }) => steps.length > 1 || steps[0]?.shown.kind !== "file" || MLFLOW.test(steps[0].shown.path))
    .sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
}

function nameOf(path: string): { name: string; step: number } | null {
  const image = MLFLOW.exec(path);
  if (image) return { name: (image[1] ?? "") + (image[2] ?? "").replaceAll("#", "/"), step: Number(image[3]) };
  const numbered = NUMBERED.exec(path);
  if (!numbered) return null;
  const [, folder = "", before = "", step, ending = ""] = numbered;
  return { name: `${folder}${before}*${ending}`, step: Number(step) };
}
