import { expect, test } from "vitest";

import { parseSearch, stringifySearch, text, texts, whole } from "../../src/app/urls";

test("a name that occurs several times is a list", () => {
  expect(parseSearch("?state=FAILED&q=mnist&state=HALTED&state=QUEUED")).toEqual({
    state: ["FAILED", "HALTED", "QUEUED"],
    q: "mnist",
  });
});

test("values stay text, whatever they look like", () => {
  expect(parseSearch("?q=1&line=true&label=%7B%22a%22%3A1%7D")).toEqual({ q: "1", line: "true", label: '{"a":1}' });
});

test("empty values are left out of a URL", () => {
  const search = { q: "", state: undefined, sort: null, label: ["", "a=b"], line: 0 };
  expect(stringifySearch(search)).toBe("?label=a%3Db&line=0");
  expect(stringifySearch({ q: undefined })).toBe("");
});

test("a search is the same after it was written and read", () => {
  const search = { q: "a b&c=d", metric: ["loss<0.3", "val/accuracy>=0.9"], name: "Zürich ✓" };
  expect(parseSearch(stringifySearch(search))).toEqual(search);
});

test("texts() makes a list of one value", () => {
  expect(texts("a")).toEqual(["a"]);
  expect(texts(["a", 2])).toEqual(["a", "2"]);
  expect(texts(undefined)).toBeUndefined();
  expect(texts("")).toBeUndefined();
  expect(texts([])).toBeUndefined();
});

test("text() accepts no lists and no empty text", () => {
  expect(text("a")).toBe("a");
  expect(text("")).toBeUndefined();
  expect(text(["a"])).toBeUndefined();
});

test("whole() accepts whole numbers from 0", () => {
  expect(whole("0")).toBe(0);
  expect(whole("12")).toBe(12);
  expect(whole(7)).toBe(7);
  const others = ["-1", "1.5", "x", "", "Infinity", -1, NaN, undefined, ["1"]];
  for (const other of others) expect(whole(other)).toBeUndefined();
});
