// From what was dropped or chosen to the list of files that go into the bundle: the rules of `weft train`.
import ignore, { type Ignore } from "ignore";

export interface Picked {
  path: string;
  file: File;
}

const LIMIT_FILES = 20_000;
const LIMIT_BYTES = 2 * 2 ** 30;

/** Names that never go into a bundle, whatever the ignore files say; the same as in the command line. */
const ALWAYS_OUT = new Set([
  ".git",
  ".hg",
  ".svn",
  ".venv",
  "__pycache__",
  ".mypy_cache",
  ".pytest_cache",
  ".ruff_cache",
  ".ipynb_checkpoints",
  ".DS_Store",
  "weft-run",
]);
const IGNORE_FILES = [".gitignore", ".weftignore"];

/** All files of dropped entries. Folders that never go into a bundle are not even walked through. */
export async function readEntries(entries: readonly FileSystemEntry[]): Promise<Picked[]> {
  const found: Picked[] = [];
  const walk = async (entry: FileSystemEntry, path: string): Promise<void> => {
    if (ALWAYS_OUT.has(entry.name)) return;
    if (entry.isFile) {
      const file = await new Promise<File>((done, failed) => (entry as FileSystemFileEntry).file(done, failed));
      found.push({ path, file });
      if (found.length > LIMIT_FILES) throw tooMany();
      return;
    }
    const reader = (entry as FileSystemDirectoryEntry).createReader();
    for (;;) {
      const some = await new Promise<FileSystemEntry[]>((done, failed) => reader.readEntries(done, failed));
      if (!some.length) return;
      for (const child of some) await walk(child, path ? `${path}/${child.name}` : child.name);
    }
  };
  // A single folder is the bundle's root; several things dropped together stand in it side by side.
  const [only] = entries;
  if (entries.length === 1 && only?.isDirectory) await walk(only, "");
  else for (const entry of entries) await walk(entry, entry.name);
  return found;
}

/** Of <input webkitdirectory>: paths begin with the folder's own name. */
export function readList(files: Iterable<File>): Picked[] {
  return [...files].map((file) => ({ path: file.webkitRelativePath.split("/").slice(1).join("/") || file.name, file }));
}

const tooMany = () =>
  new Error(`more than ${LIMIT_FILES.toLocaleString()} files: is it the code's folder? .weftignore leaves things out`);

/** What goes into the bundle, in the order of names. Throws an Error that says what is too much. */
export async function chooseFiles(all: readonly Picked[]): Promise<Picked[]> {
  const inside = all.filter((picked) => !picked.path.split("/").some((part) => ALWAYS_OUT.has(part)));
  const rules = new Map<string, Ignore>();
  for (const name of IGNORE_FILES) {
    // .weftignore is read last, and so has the last word in its folder.
    for (const picked of inside) {
      const parts = picked.path.split("/");
      if (parts.pop() !== name) continue;
      const folder = parts.join("/");
      rules.set(folder, (rules.get(folder) ?? ignore()).add(await picked.file.text()));
    }
  }
  const chosen = inside.filter((picked) => !ignored(picked.path, rules)).sort((a, b) => (a.path < b.path ? -1 : 1));
  if (chosen.length > LIMIT_FILES) throw tooMany();
  if (chosen.reduce((sum, picked) => sum + picked.file.size, 0) > LIMIT_BYTES) {
    throw new Error("more than 2 GiB: data belongs into a data store (weft data put), .weftignore leaves things out");
  }
  return chosen;
}

/** As in git: the deepest ignore file that has a word on it decides. */
function ignored(path: string, rules: ReadonlyMap<string, Ignore>): boolean {
  const parts = path.split("/");
  for (let depth = parts.length - 1; depth >= 0; depth -= 1) {
    const found = rules.get(parts.slice(0, depth).join("/"))?.test(parts.slice(depth).join("/"));
    if (found?.ignored) return true;
    if (found?.unignored) return false;
  }
  return false;
}
