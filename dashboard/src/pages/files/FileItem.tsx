import { Link } from "@tanstack/react-router";

import { size } from "../../ui/format";

interface Props {
  to: "/jobs/$jobId/files" | "/jobs/$jobId/code";
  jobId: string;
  file: { path: string; size: number };
  /** Its preview is beside the list, although the URL does not name it. */
  shown?: boolean;
}

/** A file of a list, which leads to its preview. */
export function FileItem({ to, jobId, file, shown = false }: Props) {
  return (
    <li>
      <Link
        to={to}
        params={{ jobId }}
        search={{ path: file.path }}
        replace
        className={shown ? "item shown" : "item"}
        activeOptions={{ exact: true }}
      >
        <span className="break">{file.path}</span>
        <span className="muted nowrap numbers">{size(file.size)}</span>
      </Link>
    </li>
  );
}
