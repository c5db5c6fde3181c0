import { expect, test } from "vitest";

import { nameIn, previewUrl, readPlace, steps } from "../../../src/pages/data/place";

test("a folder and an object are in a container", () => {
  expect(readPlace({ container: "digits", prefix: "train/", key: "train/a.csv" })).toEqual({
    container: "digits",
    prefix: "train/",
    key: "train/a.csv",
  });
  expect(readPlace({ prefix: "train/", key: "a.csv" })).toEqual({});
});

test("the way down to a folder", () => {
  expect(steps({})).toEqual([]);
  expect(steps({ container: "digits", prefix: "a/b c/" })).toEqual([
    { name: "digits", place: { container: "digits" } },
    { name: "a", place: { container: "digits", prefix: "a/" } },
    { name: "b c", place: { container: "digits", prefix: "a/b c/" } },
  ]);
});

test("names and URLs", () => {
  expect([nameIn("a/b.csv", "a/"), nameIn("a/b/", "a/"), nameIn("b.csv", "")]).toEqual(["b.csv", "b/", "b.csv"]);
  expect(previewUrl("my store", "c", "a/ü&b")).toBe("/api/v1/datastores/my%20store/objects:preview?container=c&key=a%2F%C3%BC%26b");
});
