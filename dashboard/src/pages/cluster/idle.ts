// GPUs that nobody uses: free ones, and those of attempts that do nothing.
import type { components } from "../../api/schema";

type Detail = Pick<components["schemas"]["EngineDetail"], "nodes" | "attempts" | "waiting">;

export interface Idle {
  /** Free GPUs by ready node, the most first. */
  free: { node: string; gpus: number }[];
  /** GPUs of this project's attempts whose learners have done nothing for a while. */
  held: number;
  jobs: number;
}

const QUIET = 10 * 60_000; // ms: shorter pauses, between epochs for instance, are usual

export const isIdle = (since: string | null, now: number) => since !== null && now - new Date(since).getTime() > QUIET;

export function idleOf({ nodes, attempts }: Detail, now: number): Idle {
  const free = nodes
    .filter((node) => node.state === "ready")
    .map((node) => ({
      node: node.name,
      gpus: (node.capacity.gpus ?? 0) - (node.used.gpus ?? 0) - (node.busy.gpus ?? 0),
    }))
    .filter(({ gpus }) => gpus > 0)
    .sort((a, b) => b.gpus - a.gpus);
  const quiet = attempts.filter((attempt) => attempt.gpus > 0 && isIdle(attempt.idle_since, now));
  return { free, held: quiet.reduce((sum, attempt) => sum + attempt.gpus, 0), jobs: quiet.length };
}
