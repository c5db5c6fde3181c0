import { expect, test } from "vitest";

import { ownPath, readReturned } from "../../../src/pages/provider";

test("a provider's answer has a code and a state", () => {
  expect(readReturned("?code=abc&state=s%20t&iss=https%3A%2F%2Flogin.acme.com")).toEqual({
    code: "abc",
    state: "s t",
    issuer: "https://login.acme.com",
  });
  expect(readReturned("?code=abc&state=s")).toMatchObject({ issuer: null });
});

test("of a refusal, no text is shown but a plain code", () => {
  const told = (search: string) => (readReturned(search) as { refused: string }).refused;
  expect(told("?error=access_denied&error_description=call%20us")).not.toContain("call");
  expect(told("?error=server_error")).toContain("(server_error)");
  expect(told("?error=Call%20us%20now")).not.toContain("Call");
  expect(told("?code=x")).toContain("sends you back");
  expect(told("")).toContain("sends you back");
});

test("only paths of this page are gone on to", () => {
  expect(ownPath("/jobs/1?x=y")).toBe("/jobs/1?x=y");
  for (const path of ["//elsewhere", "/\\elsewhere", "https://elsewhere", "", null, undefined, 7]) {
    expect(ownPath(path)).toBeUndefined();
  }
});
