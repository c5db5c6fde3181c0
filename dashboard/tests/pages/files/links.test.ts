import { expect, test } from "vitest";

import { addressOf, neighbour } from "../../../src/pages/files/links";

test("only the web and mail are followed", () => {
  expect(addressOf("https://example.org/a?b#c")).toBe("https://example.org/a?b#c");
  expect(addressOf("mailto:a@example.org")).toBe("mailto:a@example.org");
  for (const href of ["javascript:alert(1)", " java\nscript:alert(1)", "data:text/html,x", "/admin", "a.md", ""]) {
    expect(addressOf(href)).toBeNull();
  }
});

test("files beside a file", () => {
  expect(neighbour("docs/README.md", "loss.png")).toBe("docs/loss.png");
  expect(neighbour("docs/README.md", "../plots/./a%20b.png?raw")).toBe("plots/a b.png");
  expect(neighbour("README.md", "x%zz.png")).toBe("x%zz.png");
  for (const href of ["../../x.png", "https://example.org/x.png", "/x.png", "#top", "//example.org/x.png", "."]) {
    expect(neighbour("docs/README.md", href === "." ? "../" : href)).toBeNull();
  }
});
