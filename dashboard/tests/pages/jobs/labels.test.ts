import { expect, test } from "vitest";

import { readLabels } from "../../../src/pages/jobs/labels";

test("key=value sets, key- removes; a value may hold anything but separators", () => {
  expect(readLabels("team=vision, old-; run = a=b\nempty=")).toEqual({ team: "vision", old: null, run: "a=b", empty: "" });
});

test("what is neither is refused by name", () => {
  expect(readLabels("team=vision, nonsense")).toContain("“nonsense”");
  expect(readLabels("=x")).toContain("“=x”");
  expect(readLabels("-")).toContain("“-”");
  expect(readLabels(" , ")).toContain("key=value");
});
