import type { ReactNode } from "react";

/** A pair of a <dl className="facts">. */
export function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div className="pair">
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
