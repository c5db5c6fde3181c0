import type { ReactNode } from "react";

import { dateTime } from "./format";

export function Time({ at, children }: { at: string; children: ReactNode }) {
  return (
    <time dateTime={at} title={dateTime(at)} className="nowrap">
      {children}
    </time>
  );
}
