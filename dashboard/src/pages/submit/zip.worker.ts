// Zips a folder, aside of the page. The same files make the same bytes: code that has not changed is known by its hash.
import { Zip, ZipDeflate } from "fflate";

import type { Picked } from "./folder";

export type FromWorker =
  | { kind: "progress"; files: number }
  | { kind: "done"; zip: Blob; sha256: string | null }
  | { kind: "failed"; message: string };

const EPOCH = new Date(1980, 0, 1);
const tell = (message: FromWorker) => self.postMessage(message);

self.onmessage = ({ data }: MessageEvent<{ files?: Picked[]; zip?: Blob }>) => {
  void run(data).catch((error: unknown) => tell({ kind: "failed", message: (error as Error).message }));
};

async function run({ files, zip }: { files?: Picked[]; zip?: Blob }) {
  const made = zip ?? (await pack(files ?? []));
  tell({ kind: "done", zip: made, sha256: await sha256(made) });
}

async function pack(files: readonly Picked[]): Promise<Blob> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let failed: Error | null = null;
  const archive = new Zip((error, part) => {
    if (error) failed = error;
    else parts.push(part as Uint8Array<ArrayBuffer>);
  });
  let count = 0;
  for (const { path, file } of files) {
    const entry = new ZipDeflate(path, { level: 6 });
    entry.mtime = EPOCH;
    archive.add(entry);
    const reader = file.stream().getReader();
    for (;;) {
      const { value, done } = await reader.read();
      entry.push(value ?? new Uint8Array(), done);
      if (done) break;
    }
    if (failed) throw failed as Error;
    count += 1;
    if (count % 20 === 0) tell({ kind: "progress", files: count });
  }
  archive.end();
  if (failed) throw failed as Error;
  return new Blob(parts, { type: "application/zip" });
}

/** Null where the browser has no hash for pages that did not come by https: the server makes it then. */
async function sha256(zip: Blob): Promise<string | null> {
  // It is there on https and localhost only, whatever the types say.
  const subtle = crypto.subtle as SubtleCrypto | undefined;
  if (!subtle) return null;
  const digest = new Uint8Array(await subtle.digest("SHA-256", await zip.arrayBuffer()));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
