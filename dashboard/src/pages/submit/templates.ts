// The manifests of the examples, each in a chunk of its own.
const FILES = import.meta.glob<string>("../../../../examples/*/manifest.yml", { query: "?raw", import: "default" });

export interface Template {
  name: string;
  load: () => Promise<string>;
}

export const TEMPLATES: readonly Template[] = Object.entries(FILES)
  .map(([path, load]) => ({ name: path.split("/").at(-2) ?? path, load }))
  .sort((a, b) => a.name.localeCompare(b.name));
