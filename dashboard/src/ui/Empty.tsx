import type { ReactNode } from "react";

import { Command } from "./Copy";

export function Empty({ title, children, command }: { title: string; children?: ReactNode; command?: string }) {
  return (
    <div className="empty">
      <h2>{title}</h2>
      {children}
      {command && <Command text={command} />}
    </div>
  );
}
