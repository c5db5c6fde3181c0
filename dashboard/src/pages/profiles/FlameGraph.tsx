// A thread's calls as a flame graph: the width of a call is its share of the time, and below it are the calls it makes.
import flamegraph from "d3-flame-graph";
import { select } from "d3-selection";
import { useEffect, useRef, useState } from "react";

import type { Call } from "./stacks";

/** The names of calls in packages have a folder. The user's code and the standard library often have none. */
const OWN = /\((?!<)[^/()]*:\d+\)$/;

interface Props {
  thread: Call;
  /** Calls with this text are marked. */
  find: string;
}

export function FlameGraph({ thread, find }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const details = useRef<HTMLParagraphElement>(null);
  const graph = useRef<ReturnType<typeof flamegraph<Call>> | null>(null);
  const width = useWidth(place);
  useEffect(() => {
    const element = place.current;
    if (!element || !width) return;
    const made = flamegraph<Call>()
      .width(width)
      .cellHeight(20)
      .minFrameSize(1)
      .inverted(true)
      .sort(false)
      .transitionDuration(0)
      .setColorMapper(({ data }) => colour(data, thread))
      .setLabelHandler(({ data }) => `${data.name}: ${percent(data.value / thread.value)}`)
      .setDetailsElement(details.current);
    select(element).datum(thread).call(made);
    graph.current = made;
    return () => {
      graph.current = null;
      element.replaceChildren();
    };
  }, [thread, width]);
  useEffect(() => {
    if (find) graph.current?.search(find);
    else graph.current?.clear();
  }, [find, thread, width]);
  return (
    <>
      <div ref={place} className="flames" role="img" aria-label={`Flame graph of ${thread.name}; the table below has its calls`} />
      <p ref={details} className="flames-details mono muted" />
    </>
  );
}

function useWidth(of: React.RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!of.current) return;
    const observer = new ResizeObserver(([entry]) => entry && setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(of.current);
    return () => observer.disconnect();
  }, [of]);
  return width;
}

function colour(call: Call, thread: Call): string {
  if (call === thread) return "var(--flame-root)";
  return OWN.test(call.name) ? "var(--flame-own)" : "var(--flame-library)";
}

export const percent = (share: number) => `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
