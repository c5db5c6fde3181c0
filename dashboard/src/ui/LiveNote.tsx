import type { Stream } from "../api/stream";
import { span } from "./format";
import { useNow } from "./useNow";

/** Whether a stream is followed just now, behind a number of what it has brought; else how old that is. */
export function LiveNote({ stream }: { stream: Stream }) {
  if (stream.state === "ended") return null;
  if (stream.state === "open") return <>, live</>;
  return stream.heard === null ? <>, connecting …</> : <Silence since={stream.heard} />;
}

function Silence({ since }: { since: number }) {
  const seconds = Math.max(0, Math.round((useNow() - since) / 1000));
  return <>, last update {seconds < 60 ? `${seconds} s` : span(seconds)} ago, connecting again …</>;
}
