import { type DragEvent, useRef, useState } from "react";

import { ErrorNote } from "../../ui/ErrorNote";
import { plural, size } from "../../ui/format";
import { chooseFiles, type Picked, readEntries, readList } from "./folder";

export type Chosen = { kind: "folder"; name: string; files: Picked[]; left: number } | { kind: "zip"; file: File };

const MANIFEST = /^manifest\.ya?ml$/i;

interface CodeProps {
  chosen: Chosen | null;
  /** The second: the manifest that lay in the folder. */
  take: (chosen: Chosen | null, manifest: string | null) => void;
  /** Code of the job that is rerun. */
  known: string | null;
  busy: boolean;
}

/** A folder or a zip: dropped here, or chosen by a button. */
export function Code({ chosen, take, known, busy }: CodeProps) {
  const [over, setOver] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [reading, setReading] = useState(false);
  const folder = useRef<HTMLInputElement>(null);
  const zip = useRef<HTMLInputElement>(null);

  const read = async (what: () => Promise<void>) => {
    setError(null);
    setReading(true);
    await what().catch(setError);
    setReading(false);
  };
  const takeFiles = async (name: string, all: readonly Picked[]) => {
    const manifest = all.find((file) => MANIFEST.test(file.path));
    const files = (await chooseFiles(all)).filter((file) => file !== manifest);
    if (!files.length) throw new Error(`${name || "The folder"} has no file that would be sent.`);
    take({ kind: "folder", name, files, left: all.length - files.length }, (await manifest?.file.text()) ?? null);
  };
  const takeZip = (file: File) => take({ kind: "zip", file }, null);

  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    if (busy) return;
    const entries = [...event.dataTransfer.items].flatMap((item) => item.webkitGetAsEntry() ?? []);
    const files = [...event.dataTransfer.files];
    const [file] = files;
    if (entries.length === 1 && entries[0]?.isFile && file) {
      if (/\.zip$/i.test(file.name)) return takeZip(file);
      if (/\.ya?ml$/i.test(file.name)) return void read(async () => take(chosen, await file.text()));
    }
    void read(async () => takeFiles(entries[0]?.name ?? "", await readEntries(entries)));
  };

  return (
    <div
      className={over ? "drop over" : "drop"}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={drop}
    >
      {reading ? (
        <p role="status">Reading …</p>
      ) : chosen ? (
        <p className="break" role="status">
          {chosen.kind === "zip" ? (
            <>
              <strong>{chosen.file.name}</strong> {size(chosen.file.size)}
            </>
          ) : (
            <>
              <strong>{chosen.name}</strong> {plural(chosen.files.length, "file")},{" "}
              {size(chosen.files.reduce((sum, picked) => sum + picked.file.size, 0))}
              {chosen.left > 0 && <span className="muted">; {plural(chosen.left, "file")} left out</span>}
            </>
          )}{" "}
          <button type="button" className="button quiet small" disabled={busy} onClick={() => take(null, null)}>
            Remove
          </button>
        </p>
      ) : (
        <p>
          {known ? (
            <>
              The same as before (<code>{known.slice(0, 12)}</code>), unless another folder or zip is dropped here.
            </>
          ) : (
            "Drop the code’s folder or a zip here. A manifest.yml in it is taken as the manifest."
          )}
        </p>
      )}
      <div className="row">
        <button type="button" className="button" disabled={busy} onClick={() => folder.current?.click()}>
          Choose a folder …
        </button>
        <button type="button" className="button" disabled={busy} onClick={() => zip.current?.click()}>
          Choose a zip …
        </button>
      </div>
      <p className="muted small">
        Files that .gitignore or .weftignore names are left out. Code that the server has already is not sent again.
      </p>
      <ErrorNote error={error} />
      <input
        ref={folder}
        type="file"
        hidden
        aria-label="The code's folder"
        // @ts-expect-error React's types have not heard of it.
        webkitdirectory=""
        onChange={(event) => {
          const files = [...(event.target.files ?? [])];
          event.target.value = "";
          if (files.length) {
            const name = files[0]?.webkitRelativePath.split("/")[0] ?? "";
            void read(() => takeFiles(name, readList(files)));
          }
        }}
      />
      <input
        ref={zip}
        type="file"
        hidden
        accept=".zip,application/zip"
        aria-label="The code's zip"
        onChange={(event) => {
          const file = event.target.files?.[0];
          event.target.value = "";
          if (file) takeZip(file);
        }}
      />
    </div>
  );
}
