import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { expect, test, vi } from "vitest";

import { readEvents } from "../../../src/pages/media/eventFile";
import { rebinned } from "../../../src/pages/media/histogram";
import { readLearner } from "../../../src/pages/media/live";
import { isEventFile, seriesOf } from "../../../src/pages/media/series";
import { untar } from "../../../src/pages/media/tar";
import { encode, encodeJson, Frame } from "../../../src/shell/frames";
import type { Socket } from "../../../src/shell/tunnel";

// Written by PyTorch's SummaryWriter and by TensorFlow's tf.summary: at steps 0 and 10, a scalar, an image (with
// TensorFlow, two), a histogram of -1, 0, 0 and 1 + step, and the text `**step** STEP`; with TensorFlow, a table, too.
const written = (writer: string) => new Uint8Array(readFileSync(new URL(`./${writer}.tfevents`, import.meta.url)));

test.each([
  ["torch", ["digits/sample", "weights", "words"]],
  ["tensorflow", ["grid", "sample 1", "sample 2", "weights", "words"]],
])("the event files of %s", (writer, names) => {
  const series = seriesOf([], new Map([["tb/run/events.out.tfevents.1", readEvents(written(writer))]]));
  expect(series.map(({ name }) => name)).toEqual(names.map((name) => `tb/run/${name}`));
  for (const { steps } of series) expect(steps.map(({ step }) => step)).toEqual([0, 10]);
  const last = Object.fromEntries(series.map(({ name, steps }) => [name, steps[1]?.shown]));
  expect(last["tb/run/words"]).toEqual({ kind: "text", text: "**step** 10" });
  const image = last[`tb/run/${names.find((name) => name.includes("sample"))}`];
  expect(image?.kind === "image" && [...image.image.subarray(0, 4)]).toEqual([0x89, 0x50, 0x4e, 0x47]);
  const weights = last["tb/run/weights"];
  const bars = weights?.kind === "histogram" ? weights.bars : [];
  expect([bars[0]?.from, bars.at(-1)?.to]).toEqual([-1, expect.closeTo(11)]);
  expect(bars.reduce((sum, { count }) => sum + count, 0)).toBeCloseTo(4);
  if (writer === "tensorflow") expect(last["tb/run/grid"]).toEqual({ kind: "table", rows: [["a", "b"], ["c", "10"]] });
});

test("a file that is cut off or damaged shows what is whole", () => {
  const whole = written("torch");
  expect(readEvents(whole.subarray(0, whole.length - 1)).length).toBe(readEvents(whole).length - 1);
  expect(readEvents(new Uint8Array(100))).toEqual([]);
  expect(readEvents(new TextEncoder().encode("this is no event file at all, only words"))).toEqual([]);
  const damaged = whole.slice();
  for (let at = 60; at < damaged.length; at += 97) damaged[at] = 0xff;
  expect(() => readEvents(damaged)).not.toThrow();
});

test("bars of one width hold the same counts", () => {
  expect(rebinned([{ from: 0, to: 1, count: 3 }, { from: 1, to: 4, count: 3 }], 4).map(({ count }) => count)).toEqual([3, 1, 1, 1]);
  expect(rebinned([{ from: 2, to: 2, count: 5 }])).toEqual([{ from: 2, to: 2, count: 5 }]);
  expect(rebinned([{ from: NaN, to: 1, count: 1 }])).toEqual([]);
});

test("images of MLflow and files that are numbered by steps", () => {
  const modified = "2026-01-31T08:00:00Z";
  const names = [
    "images/val#sample%step%5%timestamp%1700000000000%ab12cd.png",
    "images/val#sample%step%5%timestamp%1700000000000%ab12cd%compressed.webp",
    "samples/step_100.png",
    "samples/step_20.png",
    "epoch1.md",
    "fold7.png",
    "fold8.png",
  ];
  const series = seriesOf(names.map((path) => ({ path, modified })), new Map());
  expect(series.map(({ name, steps }) => [name, steps.map(({ step }) => step)])).toEqual([
    ["samples/step_*.png", [20, 100]],
    ["val/sample", [5]],
  ]);
  expect(["tb/events.out.tfevents.17.vm.1.0", "events.py"].map(isEventFile)).toEqual([true, false]);
});

test("a step that was repeated shows the newest", () => {
  const item = (at: number, text: string) => ({ tag: "words", step: 1, at, medium: { kind: "text" as const, text } });
  const [series] = seriesOf([], new Map([["a", [item(2, "new")]], ["b", [item(1, "old")]]]));
  expect(series?.steps).toEqual([{ step: 1, shown: { kind: "text", text: "new" } }]);
});

test("event files of a learner that runs, as its agent packs them", async () => {
  const folder = mkdtempSync(join(tmpdir(), "weft-"));
  const long = `tb/${"deep/".repeat(40)}events.out.tfevents.2`;
  const files = { "tb/events.out.tfevents.1": written("torch"), [long]: written("tensorflow") };
  mkdirSync(join(folder, dirname(long)), { recursive: true });
  writeFileSync(join(folder, "tb/notes.txt"), "no event file");
  for (const [name, bytes] of Object.entries(files)) writeFileSync(join(folder, name), bytes);
  const packer = fileURLToPath(new URL("../../../../trainer_images/runtime/weft_trainer/tunnels/archive.py", import.meta.url));
  const packed = new Uint8Array(execFileSync("python3", ["-I", packer, "events", folder, join(folder, "missing")]));
  rmSync(folder, { recursive: true });
  const sent: Uint8Array[] = [];
  const socket = { send: (message: Uint8Array) => sent.push(message), close: vi.fn() } as unknown as Socket;
  const said: number[] = [];
  const read = readLearner(socket, (bytes) => said.push(bytes));
  socket.onopen?.call(socket as WebSocket, {} as Event);
  const receive = (message: Uint8Array<ArrayBuffer>) =>
    socket.onmessage?.call(socket as WebSocket, { data: message.buffer } as MessageEvent<ArrayBuffer>);
  for (let at = 0; at < packed.length; at += 5000) receive(encode(Frame.OUTPUT, packed.slice(at, at + 5000)));
  receive(encodeJson(Frame.END, { exit_code: 0 }));
  socket.onclose?.call(socket as WebSocket, { reason: "" } as CloseEvent);
  const found = await read;
  expect([...found.keys()].sort()).toEqual(Object.keys(files).sort());
  for (const [name, bytes] of Object.entries(files)) expect(found.get(name)).toEqual(bytes);
  expect(said.at(-1)).toBe(packed.length);
  expect(sent.map((message) => message[0])).toEqual([Frame.OPEN, Frame.DONE]);
});

test.each([
  [{ exit_code: 1 }, "no such folder", "no such folder"],
  [{ error: "the program of this learner has ended" }, "", "the program of this learner has ended"],
])("event files that can't be read", async (end, complaint, words) => {
  const socket = { send: vi.fn(), close: vi.fn() } as unknown as Socket;
  const read = readLearner(socket, vi.fn());
  for (const message of [encode(Frame.ERRORS, new TextEncoder().encode(complaint)), encodeJson(Frame.END, end)])
    socket.onmessage?.call(socket as WebSocket, { data: message.buffer } as MessageEvent<ArrayBuffer>);
  await expect(read).rejects.toThrow(words);
});

test("a tar that is damaged or cut off", () => {
  expect([...untar(new Uint8Array(100)).keys()]).toEqual([]);
  expect([...untar(new Uint8Array(2048).fill(0x61)).keys()]).toEqual([]);
});
