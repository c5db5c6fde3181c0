import { expect, test } from "vitest";

import { neighbour } from "../../../src/pages/files/links";

test("files beside a file", () => {
  expect(neighbour("docs/README.md", "loss.png")).toBe("docs/loss.png");
  expect(neighbour("docs/README.md", "../plots/./a%20b.png?raw")).toBe("plots/a b.png");
  expect(neighbour("README.md", "x%zz.png")).toBe("x%zz.png");
  for (const href of ["../../x.png", "https://example.org/x.png", "/x.png", "#top", "//example.org/x.png", "."]) {
    expect(neighbour("docs/README.md", href === "." ? "../" : href)).toBeNull();
  }
});
