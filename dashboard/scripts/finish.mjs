// After `vite build`: a .gz beside each asset, for the API to send, and the limit on what a first visit loads.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const LIMIT = 150_000;
const out = new URL("../../api/weft_api/dashboard/static/", import.meta.url).pathname;
const sizes = new Map();
for (const name of readdirSync(join(out, "assets"))) {
  if (!/\.(js|css|svg)$/.test(name)) continue;
  const packed = gzipSync(readFileSync(join(out, "assets", name)), { level: 9 });
  writeFileSync(join(out, "assets", `${name}.gz`), packed);
  sizes.set(`assets/${name}`, packed.length);
}

// The page and everything that it and the jobs list load before the list can be seen.
const manifest = JSON.parse(readFileSync(join(out, ".vite/manifest.json"), "utf8"));
const first = new Set();
const take = (key) => {
  const chunk = manifest[key];
  if (first.has(chunk.file)) return;
  first.add(chunk.file);
  (chunk.css ?? []).forEach((one) => first.add(one));
  (chunk.imports ?? []).forEach(take);
};
take("index.html");
for (const key of Object.keys(manifest)) if (key.startsWith("src/pages/jobs/")) take(key);
const total = [...first].reduce((sum, file) => sum + (sizes.get(file) ?? 0), 0);
console.log(`first load: ${(total / 1000).toFixed(0)} KB gzipped of ${LIMIT / 1000}`);
if (total > LIMIT) {
  for (const file of first) console.error(`  ${sizes.get(file) ?? 0}  ${file}`);
  console.error("too much: load something of it later (lazyRouteComponent, import())");
  process.exit(1);
}
