import { call } from "../api/client";

/** Opens a tunnel into a learner of a running job. Throws the API's reason if it refuses: a browser hides that of a WebSocket. */
export async function openTunnel(jobId: string, kind: string, learner: number): Promise<WebSocket> {
  await call(`/api/v1/jobs/${encodeURIComponent(jobId)}/tunnels?learner=${learner}`);
  return new WebSocket(tunnelAddress(jobId, kind, learner));
}

export function tunnelAddress(jobId: string, kind: string, learner: number): string {
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  return `${scheme}//${location.host}/api/v1/jobs/${encodeURIComponent(jobId)}/tunnels/${kind}?learner=${learner}`;
}
