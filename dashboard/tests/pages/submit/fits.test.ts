import { expect, test } from "vitest";

import { type EngineLoad, type NodeLoad, outlook } from "../../../src/pages/submit/fits";

const node = (cpus: number, used: number, changes: Partial<NodeLoad> = {}): NodeLoad => ({
  state: "ready",
  gpu_type: "A100",
  capacity: { cpus, gpus: 2, memory: 100 },
  used: { cpus: used, gpus: 0, memory: 0 },
  busy: { cpus: 1, gpus: 0, memory: 0 },
  taints: [],
  ...changes,
});
const engine = (nodes: NodeLoad[], changes: Partial<EngineLoad> = {}): EngineLoad => ({
  name: "local",
  health: "up",
  queue: "",
  queued: 2,
  nodes,
  ...changes,
});
const wanted = (learners: number, cpus: number, gpus = 0, gpu_type: string | null = null) => ({
  learners,
  each: { cpus, gpus, memory: 10, gpu_type },
});

test("learners are placed node by node", () => {
  const two = engine([node(8, 2), node(8, 4)]); // 5 and 3 CPUs are free
  expect(outlook(two, wanted(2, 3))).toEqual({ kind: "fits", learners: 2, behind: 2 });
  expect(outlook(two, wanted(2, 4))).toEqual({ kind: "waits", fitting: 1, learners: 2, behind: 2 });
  expect(outlook(two, wanted(3, 5))).toEqual({ kind: "never", learners: 3, most: 2 });
});

test("GPUs of another type, and nodes that take no learners, do not count", () => {
  expect(outlook(engine([node(8, 0)]), wanted(1, 1, 1, "H100"))).toMatchObject({ kind: "never" });
  expect(outlook(engine([node(8, 0)]), wanted(1, 1, 1, "A100"))).toMatchObject({ kind: "fits" });
  expect(outlook(engine([node(8, 0, { state: "not ready" })]), wanted(1, 1))).toMatchObject({ kind: "never" });
  expect(outlook(engine([node(8, 0, { state: "potential" })]), wanted(1, 1))).toMatchObject({ kind: "waits" });
  expect(outlook(engine([node(8, 0, { taints: ["gpu:NoSchedule"] })]), wanted(1, 1))).toMatchObject({ kind: "waits" });
});

test("what another queue or an unseen engine does is not known", () => {
  expect(outlook(engine([], { queue: "team-a" }), wanted(1, 1))).toMatchObject({ kind: "unknown" });
  expect(outlook(engine([], { health: "unseen" }), wanted(1, 1))).toMatchObject({ kind: "unknown" });
});
