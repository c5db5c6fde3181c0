import { expect, test } from "vitest";

import { type EngineState, outlook, type Room } from "../../../src/pages/submit/fits";

const engine = (changes: Partial<EngineState> = {}): EngineState => ({
  name: "local",
  health: "up",
  queue: "",
  queued: 2,
  ...changes,
});
const room = (changes: Partial<Room> = {}): Room => ({ now: 1, empty: 2, potential: 0, tainted: 0, ...changes });

test("a job fits, waits, or never fits", () => {
  expect(outlook(engine(), room(), 1)).toEqual({ kind: "fits", learners: 1, behind: 2 });
  expect(outlook(engine(), room(), 2)).toEqual({ kind: "waits", fitting: 1, learners: 2, behind: 2 });
  expect(outlook(engine(), room(), 3)).toEqual({ kind: "never", learners: 3, most: 2 });
});

test("nodes that may come, and nodes whose taints a profile may tolerate, leave hope", () => {
  expect(outlook(engine(), room({ potential: 4 }), 3)).toMatchObject({ kind: "waits" });
  expect(outlook(engine(), room({ tainted: 4 }), 3)).toMatchObject({ kind: "waits" });
});

test("what another queue or an unseen engine does is not known", () => {
  expect(outlook(engine({ queue: "team-a" }), room(), 1)).toMatchObject({ kind: "unknown" });
  expect(outlook(engine({ health: "unseen" }), room(), 1)).toMatchObject({ kind: "unknown" });
  expect(outlook(engine(), room({ now: null, empty: null }), 1)).toMatchObject({ kind: "unknown" });
});
