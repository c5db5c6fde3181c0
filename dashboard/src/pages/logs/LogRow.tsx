import { memo, useState } from "react";

import { clock, dateTime } from "../../ui/format";
import { mark, parseAnsi } from "../../ui/ansi";
import { ownColours } from "../../ui/AnsiText";
import { levelOf } from "./levels";
import type { Row } from "./LogWindow";

interface Props {
  row: Row;
  named: boolean;
  times: boolean;
  target: boolean;
  spans: readonly (readonly number[])[] | undefined;
  goTo: (line: number) => void;
}

const LONG = 3000; // characters of a line that are shown at once

export const LogRow = memo(function LogRow({ row, named, times, target, spans, goTo }: Props) {
  const [whole, setWhole] = useState(false);
  if ("gap" in row) {
    return (
      <div className="log-gap">
        {row.gap.lines.toLocaleString()} lines came faster than they could be shown.{" "}
        <button type="button" className="link" onClick={() => goTo(row.gap.from)}>
          Read them
        </button>
      </div>
    );
  }
  const { n, t, attempt, learner, text } = row.line;
  const shown = whole || text.length <= LONG ? text : text.slice(0, LONG);
  const level = levelOf(shown);
  const look = ["log-line", level && `level-${level}`, target && "target"].filter(Boolean).join(" ");
  return (
    <div className={look} aria-current={target || undefined}>
      <a
        className="log-number"
        href={`?line=${n}`}
        title={`Line ${n}, attempt ${attempt}, ${dateTime(t)}: a link to it`}
        onClick={(event) => {
          if (event.ctrlKey || event.metaKey || event.shiftKey) return;
          event.preventDefault();
          goTo(n);
        }}
      >
        {n}
      </a>
      {times && (
        <time className="log-time" dateTime={new Date(t).toISOString()}>
          {clock(t)}
        </time>
      )}
      {named && <span className={`log-learner learner-${learner % 6}`}>{learner}</span>}
      <span className="log-text">
        {mark(shown, parseAnsi(shown), spans ?? []).map((piece) =>
          piece.hit ? (
            <mark key={piece.start} className={piece.style} style={ownColours(piece)}>
              {piece.text}
            </mark>
          ) : piece.style ? (
            <span key={piece.start} className={piece.style} style={ownColours(piece)}>
              {piece.text}
            </span>
          ) : (
            piece.text
          ),
        )}
        {shown.length < text.length && (
          <button type="button" className="link" onClick={() => setWhole(true)}>
            … {(text.length - shown.length).toLocaleString()} characters more
          </button>
        )}
      </span>
    </div>
  );
});
