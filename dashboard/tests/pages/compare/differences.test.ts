import { expect, test } from "vitest";

import { byTopic, differences, parameters } from "../../../src/pages/compare/differences";

test("only paths whose values differ are listed, in the order of paths", () => {
  const first = { name: "mnist", learners: 1, framework: { name: "horovod", command: "python a.py" } };
  const second = { name: "mnist", learners: 2, framework: { name: "horovod", command: "python b.py" } };
  expect(differences([first, second])).toEqual([
    ["framework.command", ["python a.py", "python b.py"]],
    ["learners", ["1", "2"]],
  ]);
});

test("a value that a manifest does not have is undefined, which null is not", () => {
  expect(differences([{ gpus: null }, {}, { gpus: 0 }])).toEqual([["gpus", ["null", undefined, "0"]]]);
});

test("lists are compared place by place", () => {
  expect(differences([{ stores: [{ id: "a" }, { id: "b" }] }, { stores: [{ id: "a" }] }])).toEqual([
    ["stores[1].id", ["b", undefined]],
  ]);
});

test("equal manifests do not differ, whatever the order of their keys", () => {
  expect(differences([{ a: 1, b: [true] }, { b: [true], a: 1 }])).toEqual([]);
  expect(differences([{ a: 1 }])).toEqual([]);
});

test("all parameters that a job has logged are listed, by name", () => {
  const rows = parameters([{ params: { lr: "0.1", __proto__x: "1" } }, {}, { params: { lr: "0.2", depth: "3" } }]);
  expect(rows).toEqual([
    ["__proto__x", ["1", undefined, undefined]],
    ["depth", [undefined, undefined, "3"]],
    ["lr", ["0.1", undefined, "0.2"]],
  ]);
});

test("differences are grouped by what they are about", () => {
  const rows = ["name", "framework.command", "framework.version", "env.LR", "data_stores[0].id", "learners", "repo.commit"].map(
    (path): [string, string[]] => [path, []],
  );
  expect(byTopic(rows).map(({ topic, rows }) => [topic, rows.map(([path]) => path)])).toEqual([
    ["Code", ["framework.command", "repo.commit"]],
    ["Environment", ["framework.version", "env.LR"]],
    ["Data", ["data_stores[0].id"]],
    ["Resources", ["learners"]],
    ["Others", ["name"]],
  ]);
});
