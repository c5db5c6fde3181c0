import { expect, test } from "vitest";

import { addressOf } from "../../src/ui/address";

test("only the web and mail are followed", () => {
  expect(addressOf("https://example.org/a?b#c")).toBe("https://example.org/a?b#c");
  expect(addressOf("mailto:a@example.org")).toBe("mailto:a@example.org");
  for (const href of ["javascript:alert(1)", " java\nscript:alert(1)", "data:text/html,x", "/admin", "a.md", ""]) {
    expect(addressOf(href)).toBeNull();
  }
});
