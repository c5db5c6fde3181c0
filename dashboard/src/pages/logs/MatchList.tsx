// The lines that a search has found, without those between them.
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef } from "react";

import { LogRow } from "./LogRow";
import { row } from "./LogWindow";
import type { Hit } from "./useSearch";

interface Props {
  hits: readonly Hit[];
  named: boolean;
  wrap: boolean;
  times: boolean;
  target: number | null;
  /** To the line among its neighbours. */
  goTo: (line: number) => void;
  /** The last of the hits is near. */
  onEnd: () => void;
}

const HEIGHT = 20; // px, of a line that is not wrapped: --log-line
const NEAR = 40; // rows

export function MatchList({ hits, named, wrap, times, target, goTo, onEnd }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  // eslint-disable-next-line react-hooks/incompatible-library -- its result stays in this component
  const virtual = useVirtualizer({
    count: hits.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => HEIGHT,
    getItemKey: (index) => hits[index]?.line.n ?? index,
    overscan: 25,
  });
  useEffect(() => virtual.measure(), [wrap, virtual]);
  const items = virtual.getVirtualItems();
  const near = (items.at(-1)?.index ?? 0) > hits.length - NEAR;
  useEffect(() => {
    if (near) onEnd();
  }, [near, hits.length, onEnd]);
  // What `n` and `N` step to comes into sight.
  useEffect(() => {
    const at = target === null ? -1 : hits.findIndex((hit) => hit.line.n === target);
    if (at >= 0) virtual.scrollToIndex(at, { align: "auto" });
    // More hits do not move what is read.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [target, virtual]);
  return (
    <div
      ref={scroller}
      className={wrap ? "log-view wrap" : "log-view"}
      role="region"
      aria-label="Matching lines of the log"
      // Scrolled by keys.
      // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
      tabIndex={0}
    >
      <div className="log-all" style={{ height: virtual.getTotalSize() }}>
        <div className="log-part" style={{ transform: `translateY(${items[0]?.start ?? 0}px)` }}>
          {items.map((item) => {
            const hit = hits[item.index];
            return hit ? (
              <div key={item.key} ref={virtual.measureElement} data-index={item.index}>
                <LogRow
                  row={row(hit.line)}
                  named={named}
                  times={times}
                  target={hit.line.n === target}
                  spans={hit.spans}
                  goTo={goTo}
                />
              </div>
            ) : null;
          })}
        </div>
      </div>
    </div>
  );
}
