// Only the lines that match, from all of the log.
import type { Hit } from "./useSearch";
import { row } from "./LogWindow";
import { LogRow } from "./LogRow";

interface Props {
  hits: readonly Hit[];
  named: boolean;
  wrap: boolean;
  times: boolean;
  /** Show the line among its neighbours. */
  goTo: (line: number) => void;
}

export function Matches({ hits, named, wrap, times, goTo }: Props) {
  return (
    <div
      className={wrap ? "log-view wrap" : "log-view"}
      role="region"
      aria-label="Lines that match"
      // Scrolled by keys.
      // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
      tabIndex={0}
    >
      <div className="log-matches">
        {hits.map((hit) => (
          <LogRow key={hit.n} row={row(hit.line)} named={named} times={times} target={false} spans={hit.spans} goTo={goTo} />
        ))}
      </div>
    </div>
  );
}
