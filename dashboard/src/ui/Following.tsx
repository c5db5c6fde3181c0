import type { StreamState } from "../api/stream";
import { span } from "./format";
import { useNow } from "./useNow";

/** Whether what is shown is followed: live, or how old it is. Nothing once the stream has ended. */
export function Following({ stream }: { stream: StreamState }) {
  const { phase, heardAt } = stream;
  const now = useNow(phase === "silent" || phase === "away");
  if (phase === "ended") return null;
  if (phase === "open") return <span className="following live">live</span>;
  const age = heardAt === null ? "" : `last update ${span(Math.max(1, Math.round((now - heardAt) / 1000)))} ago`;
  const text = phase === "silent" ? age : [age, phase === "away" ? "reconnecting …" : "connecting …"].filter(Boolean).join(", ");
  return <span className={heardAt === null ? "following" : "following late"}>{text}</span>;
}
