import { expect, test } from "vitest";

import { mark, parseAnsi } from "../../src/ui/ansi";

const ESC = "\x1b";
const styled = (line: string) => parseAnsi(line).map(({ text, style }) => [text, style]);
const shown = (line: string) =>
  parseAnsi(line)
    .map((piece) => piece.text)
    .join("");

test("plain text is one piece, an empty line none", () => {
  expect(parseAnsi("epoch 1")).toEqual([{ text: "epoch 1", style: "", start: 0 }]);
  expect(parseAnsi("")).toEqual([]);
});

test("a colour holds until it is reset; positions are those of the raw line", () => {
  expect(parseAnsi(`a${ESC}[31mred${ESC}[0mb`)).toEqual([
    { text: "a", style: "", start: 0 },
    { text: "red", style: "a-red", start: 6 },
    { text: "b", style: "", start: 13 },
  ]);
});

test("styles add up, and each is switched off by its own code", () => {
  expect(styled(`${ESC}[1;3;4;7;9;32;44mall${ESC}[22;23;24mless${ESC}[27;29;39;49mnone`)).toEqual([
    ["all", "a-bold a-italic a-underline a-strike a-inverse a-green a-on-blue"],
    ["less", "a-strike a-inverse a-green a-on-blue"],
    ["none", ""],
  ]);
  expect(styled(`${ESC}[1;2mboth${ESC}[22mnone`)).toEqual([
    ["both", "a-bold a-dim"],
    ["none", ""],
  ]);
});

test("a sequence without parameters resets", () => {
  expect(styled(`${ESC}[1mbold${ESC}[mplain`)).toEqual([
    ["bold", "a-bold"],
    ["plain", ""],
  ]);
});

test.each([
  ["bright colours", "91;102", "a-red a-on-green"],
  ["the first 16 of 256 colours", "38;5;9", "a-red"],
])("%s are those of the theme", (_, codes, style) => {
  expect(styled(`${ESC}[${codes}mx`)).toEqual([["x", style]]);
});

test.each([
  ["the cube of 256 colours", "38;5;208", { style: "a-rgb", front: "#ff8700" }],
  ["greys of 256", "48;5;235", { style: "a-on-rgb", back: "#262626" }],
  ["24 bits", "38;2;200;10;300", { style: "a-rgb", front: "#c80aff" }],
  ["24 bits behind the text", "1;48;2;0;200;200", { style: "a-bold a-on-rgb", back: "#00c8c8" }],
  ["24 bits with colons", "38:2:200:200:0", { style: "a-rgb", front: "#c8c800" }],
])("%s are exact", (_, codes, piece) => {
  expect(parseAnsi(`${ESC}[${codes}mx`)).toMatchObject([{ text: "x", ...piece }]);
});

test("the codes after an extended colour keep their meaning", () => {
  expect(styled(`${ESC}[38;5;1;4mx`)).toEqual([["x", "a-underline a-red"]]);
  expect(styled(`${ESC}[38;2;0;0;238;1mx`)).toEqual([["x", "a-bold a-rgb"]]);
});

test.each([
  ["cursor movements", `${ESC}[2K${ESC}[1A${ESC}[?25lx`],
  ["a window title that ends with BEL", `${ESC}]0;title\x07x`],
  ["a link that ends with ST", `${ESC}]8;;https://weft.test${ESC}\\x`],
  ["a character set", `${ESC}(Bx`],
  ["a lone escape at the end", `x${ESC}`],
])("%s: sequences that are no style are left out", (_, line) => {
  expect(shown(line).replace("␛", "")).toBe("x");
});

test("of a progress bar the last state is shown", () => {
  expect(parseAnsi("10%\r50%\r100%")).toEqual([{ text: "100%", style: "", start: 8 }]);
  expect(shown("100%\r\r").trim()).toBe("100%");
});

test("control characters are pictures of the same length, and tabs stay", () => {
  expect(shown("a\x00b\x08c\x7fd\te")).toBe("a␀b␈c␡d\te");
});

test("characters that turn the direction of text are replaced", () => {
  expect(shown("user\u202etxt.exe\u2066")).toBe("user\ufffdtxt.exe\ufffd");
});

test("markup stays text", () => {
  expect(shown("<img src=x onerror=alert(1)>")).toBe("<img src=x onerror=alert(1)>");
});

test("hits are cut out of the pieces, across styles", () => {
  const line = `ab${ESC}[31mcd${ESC}[0mef`;
  const from = 1;
  const to = line.indexOf("d") + 1;
  const marked = mark(line, parseAnsi(line), [[from, to]]);
  expect(marked.map(({ text, style, hit }) => [text, style, hit])).toEqual([
    ["a", "", false],
    ["b", "", true],
    ["cd", "a-red", true],
    ["ef", "", false],
  ]);
});

test("several hits of a piece, and none", () => {
  const line = "loss loss";
  const pieces = parseAnsi(line);
  const texts = (spans: number[][]) => mark(line, pieces, spans).map(({ text, hit }) => (hit ? `[${text}]` : text));
  expect(texts([[0, 4], [5, 9]])).toEqual(["[loss]", " ", "[loss]"]);
  expect(texts([[0, 2], [2, 4]])).toEqual(["[lo]", "[ss]", " loss"]);
  expect(texts([])).toEqual(["loss loss"]);
});

test("spans count characters, not UTF-16 units", () => {
  const line = "🔥🔥 loss";
  const marked = mark(line, parseAnsi(line), [[3, 7]]);
  expect(marked.map(({ text, hit }) => [text, hit])).toEqual([
    ["🔥🔥 ", false],
    ["loss", true],
  ]);
});

test("a hit before a carriage return is not shown", () => {
  const line = "loss\rdone";
  expect(mark(line, parseAnsi(line), [[0, 4]]).map(({ text, hit }) => [text, hit])).toEqual([["done", false]]);
});
