// Images, histograms and texts from TensorBoard's event files, which are TFRecords of `Event` messages. A record is
// `length (8 bytes), checksum (4), message, checksum (4)`. These fields of the messages are read:
//
//     Event            1 wall_time: double   2 step: int64   5 summary: Summary
//     Summary          1 value: Value, repeated
//     Value            1 tag   4 image: Image   5 histo: HistogramProto   8 tensor: TensorProto   9 metadata
//     Image            4 encoded_image_string
//     HistogramProto   1 min   2 max   6 bucket_limit   7 bucket
//     TensorProto      1 dtype   2 tensor_shape   4 tensor_content   5 float_val   6 double_val   8 string_val
//     SummaryMetadata  1 plugin_data: {1 plugin_name}
import { BYTES, FIXED64, fields } from "./protobuf";
import { type Bar, rebinned } from "./histogram";

export type Medium =
  | { kind: "image"; image: Uint8Array }
  | { kind: "histogram"; bars: readonly Bar[] }
  | { kind: "text"; text: string }
  | { kind: "table"; rows: readonly (readonly string[])[] };

export interface Item {
  tag: string;
  step: number;
  /** Seconds since the epoch. */
  at: number;
  medium: Medium;
}

const HEADER = 12;
const FRAME = 16;
const FLOAT = 1;

/** What the complete records of a file hold, in their order. A file that is still written ends with half a record. */
export function readEvents(file: Uint8Array): Item[] {
  const view = viewOf(file);
  const plugins = new Map<string, string>();
  const items: Item[] = [];
  for (let at = 0; at + FRAME <= file.length; ) {
    const length = view.getUint32(at, true) + view.getUint32(at + 4, true) * 2 ** 32;
    const end = at + FRAME + length;
    // Zeros are space that the file system has allocated already.
    if (length === 0 || end > file.length) break;
    try {
      items.push(...readEvent(file.subarray(at + HEADER, end - 4), plugins));
    } catch (error) {
      if (!(error instanceof RangeError)) throw error; // a message that is damaged
    }
    at = end;
  }
  return items;
}

function readEvent(message: Uint8Array, plugins: Map<string, string>): Item[] {
  let [at, step] = [0, 0];
  const found: { tag: string; medium: Medium }[] = [];
  for (const { number, wire, value, bytes } of fields(message)) {
    if (number === 1 && wire === FIXED64) at = viewOf(bytes).getFloat64(0, true);
    else if (number === 2) step = value;
    else if (number === 5 && wire === BYTES) {
      for (const inner of fields(bytes)) if (inner.number === 1) found.push(...readValue(inner.bytes, plugins));
    }
  }
  return found.map(({ tag, medium }) => ({ tag, step, at, medium }));
}

function readValue(message: Uint8Array, plugins: Map<string, string>): { tag: string; medium: Medium }[] {
  let tag = "";
  let tensor: Uint8Array | null = null;
  let medium: Medium | null = null;
  for (const { number, bytes } of fields(message)) {
    if (number === 1) tag = words(bytes);
    else if (number === 4) medium = readImage(bytes);
    else if (number === 5) medium = { kind: "histogram", bars: readHistogram(bytes) };
    else if (number === 8) tensor = bytes;
    // Some writers name the plugin only beside the first value of a tag.
    else if (number === 9) plugins.set(tag, pluginOf(bytes));
  }
  if (medium) return [{ tag, medium }];
  if (!tensor) return [];
  const plugin = plugins.get(tag);
  if (plugin === "images") {
    const images = strings(tensor).slice(2); // after the width and the height
    return images.map((image, at) => ({ tag: images.length > 1 ? `${tag} ${at + 1}` : tag, medium: { kind: "image", image } }));
  }
  if (plugin === "histograms") return [{ tag, medium: { kind: "histogram", bars: rebinned(triples(tensor)) } }];
  if (plugin === "text") return [{ tag: tag.replace(/\/text_summary$/, ""), medium: readText(tensor) }];
  return [];
}

function pluginOf(metadata: Uint8Array): string {
  for (const { number, bytes } of fields(metadata)) {
    if (number !== 1) continue;
    for (const inner of fields(bytes)) if (inner.number === 1) return words(inner.bytes);
  }
  return "";
}

function readImage(message: Uint8Array): Medium | null {
  for (const { number, bytes } of fields(message)) if (number === 4) return { kind: "image", image: bytes };
  return null;
}

function readHistogram(message: Uint8Array): Bar[] {
  let [least, most] = [0, 0];
  const limits: number[] = [];
  const counts: number[] = [];
  for (const { number, bytes } of fields(message)) {
    if (number === 1) [least = 0] = numbers(bytes);
    else if (number === 2) [most = 0] = numbers(bytes);
    else if (number === 6) limits.push(...numbers(bytes));
    else if (number === 7) counts.push(...numbers(bytes));
  }
  const bars = limits.map((limit, at) => ({
    from: Math.max(least, limits[at - 1] ?? least),
    to: Math.min(most, limit),
    count: counts[at] ?? 0,
  }));
  return rebinned(bars.filter(({ count }) => count > 0));
}

/** A tensor of rows `from, to, count`. */
function triples(tensor: Uint8Array): Bar[] {
  const found: number[] = [];
  let size: 4 | 8 = 8;
  for (const { number, value, bytes } of fields(tensor)) {
    if (number === 1 && value === FLOAT) size = 4;
    else if (number === 4 || number === 6) found.push(...numbers(bytes, size));
    else if (number === 5) found.push(...numbers(bytes, 4));
  }
  return Array.from({ length: Math.floor(found.length / 3) }, (_, at) => {
    const [from = 0, to = 0, count = 0] = found.slice(3 * at);
    return { from, to, count };
  });
}

/** A tensor of strings: one is a text, several are a table. */
function readText(tensor: Uint8Array): Medium {
  const cells = strings(tensor).map(words);
  const [, columns = 1] = shapeOf(tensor);
  if (cells.length <= 1) return { kind: "text", text: cells[0] ?? "" };
  const rows = Array.from({ length: Math.ceil(cells.length / columns) }, (_, at) => cells.slice(at * columns, (at + 1) * columns));
  return { kind: "table", rows };
}

function shapeOf(tensor: Uint8Array): number[] {
  const sizes: number[] = [];
  for (const shape of fields(tensor)) {
    if (shape.number !== 2) continue;
    for (const dimension of fields(shape.bytes)) {
      for (const { number, value } of fields(dimension.bytes)) if (number === 1) sizes.push(Math.max(1, value));
    }
  }
  return sizes;
}

const strings = (tensor: Uint8Array) => [...fields(tensor)].filter(({ number }) => number === 8).map(({ bytes }) => bytes);
const words = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
const viewOf = (bytes: Uint8Array) => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

function numbers(bytes: Uint8Array, size: 4 | 8 = 8): number[] {
  const view = viewOf(bytes);
  const read = (at: number) => (size === 8 ? view.getFloat64(8 * at, true) : view.getFloat32(4 * at, true));
  return Array.from({ length: Math.floor(bytes.length / size) }, (_, at) => read(at));
}
