import { expect, test } from "vitest";

import { idleOf, isIdle } from "../../../src/pages/cluster/idle";
import { useLinesOf } from "../../../src/pages/cluster/useLines";

type Detail = Parameters<typeof idleOf>[0];
const NOW = Date.parse("2026-01-31T08:00:00Z");
const node = (name: string, state: string, all: number, used: number, busy = 0) => ({
  name,
  state,
  capacity: { gpus: all },
  used: { gpus: used },
  busy: { gpus: busy },
});
const attempt = (gpus: number, idle_since: string | null) => ({ gpus, idle_since });

test("free GPUs are those of ready nodes that neither jobs nor others use; the most come first", () => {
  const nodes = [node("a", "ready", 8, 6, 1), node("b", "ready", 8, 0), node("c", "not ready", 8, 0), node("d", "ready", 4, 4)];
  expect(idleOf({ nodes, attempts: [], waiting: [] } as unknown as Detail, NOW).free).toEqual([
    { node: "b", gpus: 8 },
    { node: "a", gpus: 1 },
  ]);
});

test("GPUs of attempts count as idle after ten quiet minutes", () => {
  const attempts = [attempt(4, "2026-01-31T07:40:00Z"), attempt(2, "2026-01-31T07:55:00Z"), attempt(1, null), attempt(0, "2026-01-31T07:00:00Z")];
  const found = idleOf({ nodes: [], attempts, waiting: [] } as unknown as Detail, NOW);
  expect([found.held, found.jobs]).toEqual([4, 1]);
  expect(isIdle("2026-01-31T07:49:59Z", NOW)).toBe(true);
});

test("engines without a GPU have no line among the GPUs", () => {
  const points = [{ at: "2026-01-31T08:00:00Z", cpus: 3, gpus: 0 }];
  const engines = [{ name: "cpu", points }, { name: "gpu", points: [{ ...points[0], gpus: 2 }] }] as Parameters<typeof useLinesOf>[0];
  expect(useLinesOf(engines, "gpus").map((line) => [line.label, line.last])).toEqual([["gpu", [2]]]);
  expect(useLinesOf(engines, "cpus")[0]?.x).toEqual([NOW]);
});
