// Whether a job would start now, by the room of its engine. Admission decides; this only estimates.
export interface EngineState {
  name: string;
  health: string;
  queue: string;
  queued: number;
}

/** Learners that fit: now, when nothing else runs, on nodes that may come, and on nodes with taints. */
export interface Room {
  now: number | null;
  empty: number | null;
  potential: number | null;
  tainted: number | null;
}

export type Outlook =
  | { kind: "fits"; learners: number; behind: number }
  | { kind: "waits"; fitting: number; learners: number; behind: number }
  | { kind: "never"; learners: number; most: number }
  | { kind: "unknown"; why: string };

export function outlook(engine: EngineState, room: Room, learners: number): Outlook {
  if (engine.health !== "up" || room.now === null || room.empty === null) {
    return { kind: "unknown", why: `no worker has seen the engine ${engine.name} lately` };
  }
  if (engine.queue) return { kind: "unknown", why: `the queue ${engine.queue} admits jobs on the engine ${engine.name}` };
  if (room.now >= learners) return { kind: "fits", learners, behind: engine.queued };
  if (room.empty < learners && !room.potential && !room.tainted) return { kind: "never", learners, most: room.empty };
  return { kind: "waits", fitting: room.now, learners, behind: engine.queued };
}
