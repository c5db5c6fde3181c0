// Whether a job would start now, by what the nodes of its engine have free. Admission decides; this only estimates.
interface Amounts {
  cpus: number;
  gpus: number;
  memory: number;
}

export interface NodeLoad {
  state: string;
  gpu_type: string | null;
  capacity: Amounts;
  used: Amounts;
  busy: Amounts;
  taints: readonly string[];
}

export interface EngineLoad {
  name: string;
  health: string;
  queue: string;
  queued: number;
  nodes: readonly NodeLoad[];
}

export interface Wanted {
  learners: number;
  each: Amounts & { gpu_type?: string | null | undefined };
}

export type Outlook =
  | { kind: "fits"; learners: number; behind: number }
  | { kind: "waits"; fitting: number; learners: number; behind: number }
  | { kind: "never"; learners: number; most: number }
  | { kind: "unknown"; why: string };

/** How many learners of this size have room beside each other in what `left` leaves of each node. */
function room(nodes: readonly NodeLoad[], each: Wanted["each"], left: (node: NodeLoad, amount: keyof Amounts) => number): number {
  const usable = nodes.filter(
    (node) => node.state === "ready" && node.taints.length === 0 && (!each.gpu_type || each.gpus === 0 || node.gpu_type === each.gpu_type),
  );
  const on = (node: NodeLoad) =>
    Math.min(
      ...(["cpus", "gpus", "memory"] as const)
        .filter((amount) => each[amount] > 0)
        .map((amount) => Math.floor(left(node, amount) / each[amount] + 1e-9)),
    );
  return usable.reduce((sum, node) => sum + Math.max(0, on(node)), 0);
}

export function outlook(engine: EngineLoad, wanted: Wanted): Outlook {
  const { learners, each } = wanted;
  if (engine.health !== "up") return { kind: "unknown", why: `no worker has seen the engine ${engine.name} lately` };
  if (engine.queue) return { kind: "unknown", why: `the queue ${engine.queue} admits jobs on the engine ${engine.name}` };
  const nodes = engine.nodes;
  const most = room(nodes, each, (node, amount) => node.capacity[amount]);
  const tainted = nodes.some((node) => node.taints.length > 0 || node.state === "potential");
  if (most < learners && !tainted) return { kind: "never", learners, most };
  const fitting = room(nodes, each, (node, amount) => node.capacity[amount] - node.used[amount] - node.busy[amount]);
  if (fitting >= learners) return { kind: "fits", learners, behind: engine.queued };
  return { kind: "waits", fitting, learners, behind: engine.queued };
}
