import { expect, test } from "vitest";

import { type Schema, suggestions } from "../../../src/pages/submit/complete";

const SCHEMA: Schema = {
  type: "object",
  properties: {
    name: { type: "string", description: "The job's name." },
    learners: { type: "integer" },
    keep: { type: "boolean" },
    framework: {
      type: "object",
      properties: { name: { enum: ["pytorch", "python", "ray"] }, command: { type: "string" }, version: { type: "string" } },
    },
    data_stores: {
      type: "array",
      items: {
        type: "object",
        properties: { id: { type: "string" }, training_data: { type: "object", properties: { container: { type: "string" } } } },
      },
    },
  },
};

/** What is offered at the mark |. */
function offered(marked: string): string[] {
  const cursor = marked.indexOf("|");
  return suggestions(SCHEMA, marked.replace("|", ""), cursor)?.options.map(({ text }) => text) ?? [];
}

test("keys that the place takes, and that are not there yet", () => {
  expect(offered("|")).toEqual(["name", "learners", "keep", "framework", "data_stores"]);
  expect(offered("name: a\nl|\nkeep: true\n")).toEqual(["learners"]);
  expect(offered("framework:\n  |")).toEqual(["name", "command", "version"]);
  expect(offered("framework:\n  name: ray\n\n  # what runs\n  comm|\nname: x")).toEqual(["command"]);
  expect(offered("framework:\n  name: ray\nk|")).toEqual(["keep"]);
});

test("keys in lists, in either style of indentation", () => {
  for (const lead of ["  ", ""]) {
    expect(offered(`data_stores:\n${lead}- |`)).toEqual(["id", "training_data"]);
    expect(offered(`data_stores:\n${lead}- id: a\n${lead}  |`)).toEqual(["training_data"]);
    expect(offered(`data_stores:\n${lead}- id: a\n${lead}- |`)).toEqual(["id", "training_data"]);
    expect(offered(`data_stores:\n${lead}- id: a\n${lead}  training_data:\n${lead}    |`)).toEqual(["container"]);
  }
});

test("values of a key", () => {
  expect(offered("framework:\n  name: py|")).toEqual(["pytorch", "python"]);
  expect(offered("keep: |")).toEqual(["true", "false"]);
  expect(offered("name: |")).toEqual([]);
});

test("nothing is offered in the middle of a line, for a whole word, or where nothing is known", () => {
  expect(offered("na|me: a")).toEqual([]);
  expect(offered("framework:\n  name: ray|")).toEqual([]);
  expect(offered("nothing:\n  |")).toEqual([]);
  expect(offered("name: a # a comment |")).toEqual([]);
});

test("a mapping begins on a line of its own", () => {
  const insert = (text: string) => suggestions(SCHEMA, text, text.length)?.options[0];
  expect(insert("fr")).toEqual({ text: "framework", insert: "framework:\n  ", detail: "" });
  expect(insert("na")).toMatchObject({ insert: "name: ", detail: "The job's name." });
});
