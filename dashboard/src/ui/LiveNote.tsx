import type { Stream } from "../api/stream";
import { span } from "./format";
import { useNow } from "./useNow";

/** Whether a stream is followed just now, behind a number of what it has brought; else how old that is. */
export function LiveNote({ stream }: { stream: Stream }) {
  const now = useNow(stream.state === "away" || stream.state === "connecting");
  if (stream.state === "ended") return null;
  if (stream.state === "open") return <>, live</>;
  if (stream.heard === null) return <>, connecting …</>;
  const seconds = Math.max(0, Math.round((now - stream.heard) / 1000));
  return <>, last update {seconds < 60 ? `${seconds} s` : span(seconds)} ago, connecting again …</>;
}
