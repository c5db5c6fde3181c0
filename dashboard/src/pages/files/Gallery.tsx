import { Link } from "@tanstack/react-router";
import { useState } from "react";

import type { FileEntry } from "../../api/types";
import { size } from "../../ui/format";
import { fileUrl } from "./preview";

const SHOWN = 60;

/** The images of a job's results beside each other; each leads to the file. */
export function Gallery({ jobId, images }: { jobId: string; images: readonly FileEntry[] }) {
  const [most, setMost] = useState(SHOWN);
  return (
    <section className="stack" aria-label="Images">
      <ul className="gallery">
        {images.slice(0, most).map((file) => (
          <li key={file.path}>
            <Link to="/jobs/$jobId/files" params={{ jobId }} search={{ path: file.path }}>
              <img src={`${fileUrl(jobId, file.path)}?preview=true`} alt="" loading="lazy" />
              <span className="gallery-name" title={file.path}>
                <span className="clip">{file.path}</span> <span className="muted nowrap">{size(file.size)}</span>
              </span>
            </Link>
          </li>
        ))}
      </ul>
      {images.length > most && (
        <button type="button" className="button" onClick={() => setMost(most + SHOWN)}>
          {(images.length - most).toLocaleString()} more
        </button>
      )}
    </section>
  );
}
