import { parseAnsi } from "../pages/logs/ansi";

/** Some lines that a program has printed, in its colours. */
export function Output({ lines, label }: { lines: readonly string[]; label: string }) {
  return (
    // Long lines are scrolled, by keys too.
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <pre className="output" role="region" aria-label={label} tabIndex={0}>
      {lines.map((line, at) => (
        <span key={at}>
          {parseAnsi(line).map((piece) =>
            piece.style ? (
              <span key={piece.start} className={piece.style}>
                {piece.text}
              </span>
            ) : (
              piece.text
            ),
          )}
          {"\n"}
        </span>
      ))}
    </pre>
  );
}
