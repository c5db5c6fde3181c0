// Terminal colours as classes. Only SGR sequences mean something here; whatever else a program sends is left out or
// shown as a picture of itself. The result is text with class names: nothing of it can become markup.

export interface Piece {
  text: string;
  /** Class names, "" for plain text. */
  style: string;
  /** A colour of its own, besides those that have a class: #rrggbb. */
  front?: string;
  back?: string;
  /** Where it begins in the raw line, in UTF-16 units. */
  start: number;
}

const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
// CSI (parameters, intermediates, final), OSC up to its end, and two-character escapes.
// eslint-disable-next-line no-control-regex
const ESCAPE = /\x1b(?:\[([0-9;:<=>?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^-~])/g;
// eslint-disable-next-line no-control-regex
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f]/g;
// Text that turns the direction of what follows could make a line say something else than it does.
const BIDI = /[\u202a-\u202e\u2066-\u2069]/g;

interface Style {
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
  strike: boolean;
  inverse: boolean;
  front: string | null;
  back: string | null;
}
const PLAIN: Style = {
  bold: false,
  dim: false,
  italic: false,
  underline: false,
  strike: false,
  inverse: false,
  front: null,
  back: null,
};

/** The line without its escapes. */
export const plainText = (line: string) =>
  parseAnsi(line)
    .map((piece) => piece.text)
    .join("");

/** The line in pieces of one style each. Of a progress bar's carriage returns, what they left to be seen. */
export function parseAnsi(line: string): Piece[] {
  const pieces: Piece[] = [];
  let begin = 0;
  const turn = line.replace(/\r+$/, "").lastIndexOf("\r");
  if (turn >= 0) begin = turn + 1;
  let style = PLAIN;
  let at = begin;
  const add = (to: number) => {
    if (to > at) pieces.push({ text: visible(line.slice(at, to)), ...looks(style), start: at });
  };
  ESCAPE.lastIndex = begin;
  for (let found = ESCAPE.exec(line); found; found = ESCAPE.exec(line)) {
    add(found.index);
    at = found.index + found[0].length;
    if (found[2] === "m") style = apply(style, found[1] ?? "");
  }
  add(line.length);
  return pieces;
}

/** Each control character as one that can be seen, so that positions stay. */
function visible(text: string): string {
  return text
    .replace(/\r/g, " ")
    .replace(CONTROL, (control) => String.fromCharCode(control === "\x7f" ? 0x2421 : 0x2400 + control.charCodeAt(0)))
    .replace(BIDI, "\ufffd");
}

function looks(style: Style): Omit<Piece, "text" | "start"> {
  const names: string[] = [];
  if (style.bold) names.push("a-bold");
  if (style.dim) names.push("a-dim");
  if (style.italic) names.push("a-italic");
  if (style.underline) names.push("a-underline");
  if (style.strike) names.push("a-strike");
  if (style.inverse) names.push("a-inverse");
  const own: { front?: string; back?: string } = {};
  if (style.front?.startsWith("#")) own.front = style.front;
  if (style.back?.startsWith("#")) own.back = style.back;
  if (style.front) names.push(own.front ? "a-rgb" : `a-${style.front}`);
  if (style.back) names.push(own.back ? "a-on-rgb" : `a-on-${style.back}`);
  return { style: names.join(" "), ...own };
}

function apply(before: Style, parameters: string): Style {
  const codes = parameters.split(/[;:]/).map((code) => (code === "" ? 0 : Number(code)));
  let style = { ...before };
  for (let place = 0; place < codes.length; place += 1) {
    const code = codes[place] ?? 0;
    if (code === 0) style = { ...PLAIN };
    else if (code === 1) style.bold = true;
    else if (code === 2) style.dim = true;
    else if (code === 3) style.italic = true;
    else if (code === 4) style.underline = true;
    else if (code === 7) style.inverse = true;
    else if (code === 9) style.strike = true;
    else if (code === 22) style.bold = style.dim = false;
    else if (code === 23) style.italic = false;
    else if (code === 24) style.underline = false;
    else if (code === 27) style.inverse = false;
    else if (code === 29) style.strike = false;
    else if (code >= 30 && code <= 37) style.front = NAMES[code - 30] ?? null;
    else if (code >= 90 && code <= 97) style.front = NAMES[code - 90] ?? null;
    else if (code === 39) style.front = null;
    else if (code >= 40 && code <= 47) style.back = NAMES[code - 40] ?? null;
    else if (code >= 100 && code <= 107) style.back = NAMES[code - 100] ?? null;
    else if (code === 49) style.back = null;
    else if (code === 38 || code === 48) {
      const [name, used] = extended(codes.slice(place + 1));
      if (code === 38) style.front = name;
      else style.back = name;
      place += used;
    }
  }
  return style;
}

const hex = (...channels: number[]) =>
  `#${channels.map((channel) => Math.max(0, Math.min(255, channel || 0)).toString(16).padStart(2, "0")).join("")}`;
/** The steps of each channel in the cube of the 256 colours. */
const STEPS = [0, 95, 135, 175, 215, 255];

/** `5;N` of 256 colours or `2;R;G;B`, and how many codes it took. The first 16 are the theme's, the others are exact. */
function extended(codes: number[]): [string | null, number] {
  if (codes[0] === 2) return [hex(codes[1] ?? 0, codes[2] ?? 0, codes[3] ?? 0), 4];
  if (codes[0] !== 5) return [null, 1];
  const index = codes[1] ?? 0;
  if (index < 16) return [NAMES[index % 8] ?? null, 2];
  if (index > 255) return [null, 2];
  const grey = 8 + 10 * (index - 232);
  if (index >= 232) return [hex(grey, grey, grey), 2];
  const cube = index - 16;
  const step = (place: number) => STEPS[Math.floor(cube / place) % 6] ?? 0;
  return [hex(step(36), step(6), step(1)), 2];
}

/** Pieces with what matches marked: `spans` are [begin, end) in characters (code points) of the raw line. */
export function mark(
  line: string,
  pieces: readonly Piece[],
  spans: readonly (readonly number[])[],
): (Piece & { hit: boolean })[] {
  const units = toUnits(line, spans);
  const marked: (Piece & { hit: boolean })[] = [];
  for (const piece of pieces) {
    const end = piece.start + piece.text.length;
    let at = piece.start;
    const cut = (to: number, hit: boolean) => {
      if (to > at) {
        marked.push({ ...piece, start: at, text: piece.text.slice(at - piece.start, to - piece.start), hit });
        at = to;
      }
    };
    for (const [from, to] of units) {
      if (to <= at || from >= end) continue;
      cut(Math.max(from, at), false);
      cut(Math.min(to, end), true);
    }
    cut(end, false);
  }
  return marked;
}

function toUnits(line: string, spans: readonly (readonly number[])[]): [number, number][] {
  const plain = !/[\ud800-\udfff]/.test(line);
  const unit = (point: number) => (plain ? point : [...line].slice(0, point).join("").length);
  return spans.map(([from, to]) => [unit(from ?? 0), unit(to ?? 0)]);
}
