import { expect, test } from "vitest";

import { chooseFiles, type Picked, readEntries, readList } from "../../../src/pages/submit/folder";

const pick = (path: string, content = "") => ({ path, file: new File([content], path.split("/").at(-1) ?? path) });
const chosen = async (...all: Picked[]) => (await chooseFiles(all)).map((picked) => picked.path);

/** A file or a folder as a browser hands it over when it is dropped. A folder's reader gives some entries at a time. */
function entry(name: string, content: FileSystemEntry[] | null = null): FileSystemEntry {
  if (!content) {
    const file = (done: (file: File) => void) => done(new File(["x"], name));
    return { name, isFile: true, isDirectory: false, file } as unknown as FileSystemEntry;
  }
  const createReader = () => {
    const left = [...content];
    return { readEntries: (done: (some: FileSystemEntry[]) => void) => done(left.splice(0, 2)) };
  };
  return { name, isFile: false, isDirectory: true, createReader } as unknown as FileSystemEntry;
}

test("a dropped folder is the root of the bundle, however many files it has", async () => {
  const folder = entry("code", [entry("train.py"), entry("lib", [entry("a.py")]), entry("b.py"), entry("c.py")]);
  const found = await readEntries([folder]);
  expect(found.map((picked) => picked.path).sort()).toEqual(["b.py", "c.py", "lib/a.py", "train.py"]);
});

test("several dropped things stand side by side in the bundle", async () => {
  const found = await readEntries([entry("train.py"), entry("lib", [entry("a.py")])]);
  expect(found.map((picked) => picked.path)).toEqual(["train.py", "lib/a.py"]);
});

test("folders that never go into a bundle are not walked through", async () => {
  const forbidden = { name: ".git", isFile: false, isDirectory: true } as FileSystemEntry; // has no reader
  const found = await readEntries([entry("code", [entry("train.py"), forbidden])]);
  expect(found.map((picked) => picked.path)).toEqual(["train.py"]);
});

test("a folder that is chosen comes without its own name", () => {
  const file = new File([""], "a.py");
  Object.defineProperty(file, "webkitRelativePath", { value: "code/lib/a.py" });
  const alone = new File([""], "b.py");
  Object.defineProperty(alone, "webkitRelativePath", { value: "" });
  expect(readList([file, alone]).map((picked) => picked.path)).toEqual(["lib/a.py", "b.py"]);
});

test("files are in the order of their names, without what never goes into a bundle", async () => {
  const all = ["train.py", "lib/b.py", "lib/a.py", ".git/config", "lib/__pycache__/a.pyc", "weft-run/x", ".DS_Store"];
  expect(await chosen(...all.map((path) => pick(path)))).toEqual(["lib/a.py", "lib/b.py", "train.py"]);
});

test("ignore files leave files out and let them in again", async () => {
  const all = [
    pick(".gitignore", "*.log\ndata/\n!keep.log\n"),
    pick("train.py"),
    pick("a.log"),
    pick("keep.log"),
    pick("data/big.bin"),
    pick("lib/b.log"),
  ];
  expect(await chosen(...all)).toEqual([".gitignore", "keep.log", "train.py"]);
});

test("the deepest ignore file decides", async () => {
  const all = [
    pick(".gitignore", "*.txt\n"),
    pick("notes.txt"),
    pick("docs/.gitignore", "!*.txt\n"),
    pick("docs/a.txt"),
    pick("docs/private/.gitignore", "a.txt\n"),
    pick("docs/private/a.txt"),
  ];
  expect(await chosen(...all)).toEqual([".gitignore", "docs/.gitignore", "docs/a.txt", "docs/private/.gitignore"]);
});

test(".weftignore has the last word in its folder", async () => {
  const rules = [pick(".weftignore", "!model.pt\nslides/\n"), pick(".gitignore", "*.pt\n")];
  const others = ["model.pt", "other.pt", "slides/a.py"].map((path) => pick(path));
  expect(await chosen(...rules, ...others)).toEqual([".gitignore", ".weftignore", "model.pt"]);
});

test("too many files and too many bytes are refused, with what helps", async () => {
  const { file } = pick("a.py");
  const many = Array.from({ length: 20_001 }, (_, at) => ({ path: `${at}.py`, file }));
  await expect(chooseFiles(many)).rejects.toThrow(/more than 20.000 files.*\.weftignore/);
  const big = pick("big.bin");
  Object.defineProperty(big.file, "size", { value: 2 * 2 ** 30 + 1 });
  await expect(chooseFiles([big])).rejects.toThrow(/more than 2 GiB.*weft data put/);
});
