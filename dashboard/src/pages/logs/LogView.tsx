// The lines on the screen: only those that can be seen are in the document. What is loaded above them must not move
// them, and the newest line stays in sight while one is at the end.
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useLayoutEffect, useRef } from "react";

import { LogRow } from "./LogRow";
import type { LogWindow, Snapshot } from "./LogWindow";

interface Props {
  log: LogWindow;
  state: Snapshot;
  /** Each line says whose it is. */
  named: boolean;
  /** The line of the URL. */
  target: number | null;
  spans: ReadonlyMap<number, readonly (readonly number[])[]>;
  pinned: boolean;
  setPinned: (pinned: boolean) => void;
  wrap: boolean;
  times: boolean;
  goTo: (line: number) => void;
}

const HEIGHT = 20; // px, of a line that is not wrapped: --log-line
const NEAR = 60; // rows from an edge at which more are loaded
const AT_END = 24; // px

export function LogView({ log, state, named, target, spans, pinned, setPinned, wrap, times, goTo }: Props) {
  const { rows } = state;
  const scroller = useRef<HTMLDivElement>(null);
  const anchor = useRef<{ key: string; offset: number } | null>(null);
  const scrolledTo = useRef({ top: 0, height: 0 });
  const jumped = useRef<string | null>(null);

  // eslint-disable-next-line react-hooks/incompatible-library -- its result stays in this component
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => HEIGHT,
    getItemKey: (index) => rows[index]?.key ?? index,
    overscan: 25,
  });
  const items = virtual.getVirtualItems();
  const first = items[0]?.index ?? 0;
  const last = items.at(-1)?.index ?? 0;
  const height = virtual.getTotalSize();

  // Before the browser paints rows that have changed: to the line asked for, to the end, or where one was.
  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element || rows.length === 0) return;
    if (target === null) {
      jumped.current = null;
    } else if (jumped.current !== `${target}`) {
      if (!log.has(target) && state.opened !== target) return; // it is on its way
      const index = rows.findIndex((row) => ("gap" in row ? row.gap.to : row.line.n) >= target);
      jumped.current = `${target}`;
      const place = virtual.measurementsCache[index < 0 ? rows.length - 1 : index];
      if (!place) return;
      setPinned(false); // a scroll event of before may have come in between
      const offset = (HEIGHT - element.clientHeight) / 2;
      element.scrollTop = place.start + offset;
      anchor.current = { key: String(place.key), offset: element.scrollTop - place.start };
      return;
    }
    if (pinned && state.atEnd) {
      element.scrollTop = element.scrollHeight;
      return;
    }
    const held = anchor.current;
    const index = held ? rows.findIndex((row) => row.key === held.key) : -1;
    const start = virtual.measurementsCache[index]?.start;
    if (held && start !== undefined && Math.abs(start + held.offset - element.scrollTop) > 1) {
      element.scrollTop = start + held.offset;
    }
    // The virtualizer is the same object all the time.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [rows, target, pinned, state.atEnd, height]);

  // Wrapping changes every height.
  useEffect(() => virtual.measure(), [wrap, virtual]);

  const scrolled = () => {
    const element = scroller.current;
    if (!element) return;
    const atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < AT_END;
    const { top: topBefore, height: heightBefore } = scrolledTo.current;
    scrolledTo.current = { top: element.scrollTop, height: element.scrollHeight };
    // Rows that turn out to be higher than thought leave one above the end, too: only scrolling up leaves it.
    const up = element.scrollTop < topBefore && element.scrollHeight >= heightBefore;
    if (pinned ? !atEnd && up : atEnd && state.atEnd) setPinned(!pinned);
    const top = virtual.getVirtualItemForOffset(element.scrollTop);
    anchor.current = top ? { key: String(top.key), offset: element.scrollTop - top.start } : null;
    if (top && top.index < NEAR && state.above) void log.up();
    if (last > rows.length - NEAR) void log.down();
  };
  // A window too short to be scrolled is filled, too.
  useEffect(() => {
    if (!state.busy && !state.error && state.above && first < NEAR && target !== null) void log.up();
    const wanted = pinned || last > rows.length - NEAR;
    if (!state.busy && !state.error && !state.atEnd && wanted) void log.down();
  }, [log, first, last, rows.length, state.busy, state.error, state.above, state.atEnd, target, pinned]);

  return (
    <div
      ref={scroller}
      className={wrap ? "log-view wrap" : "log-view"}
      role="region"
      aria-label="Lines of the log"
      // Scrolled by keys.
      // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
      tabIndex={0}
      onScroll={scrolled}
    >
      <div className="log-all" style={{ height }}>
        {/* All lines that are not wrapped have the same height: to measure them would make the browser lay them out twice. */}
        <div className="log-part" style={{ transform: `translateY(${items[0]?.start ?? 0}px)` }}>
          {items.map((item) => {
            const row = rows[item.index];
            return row ? (
              <div key={item.key} ref={wrap || "gap" in row ? virtual.measureElement : undefined} data-index={item.index}>
                <LogRow
                  row={row}
                  named={named}
                  times={times}
                  target={"line" in row && row.line.n === target}
                  spans={"line" in row ? spans.get(row.line.n) : undefined}
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
