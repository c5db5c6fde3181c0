import type { CSSProperties } from "react";

import { parseAnsi, type Piece } from "./ansi";

/** The colours of a piece that has some of its own, for the classes a-rgb and a-on-rgb. */
export function ownColours({ front, back }: Pick<Piece, "front" | "back">): CSSProperties | undefined {
  if (!front && !back) return undefined;
  return { ...(front && { "--front": front }), ...(back && { "--back": back }) } as CSSProperties;
}

/** A line with the colours that it has in a terminal. */
export function AnsiText({ text }: { text: string }) {
  return parseAnsi(text).map((piece) =>
    piece.style ? (
      <span key={piece.start} className={piece.style} style={ownColours(piece)}>
        {piece.text}
      </span>
    ) : (
      piece.text
    ),
  );
}
