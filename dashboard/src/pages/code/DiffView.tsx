import { useMemo } from "react";

import { diffLines } from "./diff";

const SIGNS = { same: " ", added: "+", removed: "−", gap: "" };
const MOST = 5000; // lines

/** What changed from one text to another, line by line. */
export function DiffView({ before, after }: { before: string; after: string }) {
  const lines = useMemo(() => diffLines(before, after), [before, after]);
  if (lines === null) return <p className="note">The two differ too much to be shown line by line.</p>;
  if (!lines.length) return <p className="note">The two are the same.</p>;
  return (
    // Scrolled by keys.
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <div className="code diff" role="region" aria-label="Changed lines" tabIndex={0}>
      <table>
        <tbody>
          {lines.slice(0, MOST).map((line, at) => (
            <tr key={at} className={`diff-${line.kind}`}>
              <td className="diff-number">{line.old}</td>
              <td className="diff-number">{line.now}</td>
              <td className="diff-sign">
                {SIGNS[line.kind]}
                {(line.kind === "added" || line.kind === "removed") && <span className="visually-hidden">{line.kind}</span>}
              </td>
              <td className="diff-text">{line.text}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
