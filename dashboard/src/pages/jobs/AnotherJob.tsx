import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { json } from "../../api/client";
import type { JobPage } from "../../api/types";
import { Dialog } from "../../ui/Dialog";
import { ErrorNote } from "../../ui/ErrorNote";
import { Loading } from "../../ui/Loading";

/** Choose one more job; those of `not` are there already. */
export function AnotherJob({ not, choose, onClose }: { not: string[]; choose: (id: string) => void; onClose: () => void }) {
  const [q, setQ] = useState("");
  const { data, error } = useQuery({
    queryKey: ["jobs", "choose", q],
    queryFn: ({ signal }) =>
      json<JobPage>(`/jobs?limit=30${q ? `&q=${encodeURIComponent(q)}` : ""}`, "GET", undefined, signal),
    placeholderData: (before) => before,
  });
  const jobs = data?.jobs.filter((job) => !not.includes(job.id)) ?? [];
  return (
    <Dialog title="With another job" onClose={onClose}>
      <input
        className="input"
        type="search"
        aria-label="Name or id"
        placeholder="Name or id"
        value={q}
        onChange={(event) => setQ(event.target.value)}
      />
      <ErrorNote error={error} />
      {!data && !error && <Loading />}
      <ul className="choices">
        {jobs.map((job) => (
          <li key={job.id}>
            <button
              type="button"
              className="button quiet"
              onClick={() => {
                choose(job.id);
                onClose();
              }}
            >
              <span className="break">{job.name}</span> <span className="muted mono">{job.id}</span>
            </button>
          </li>
        ))}
      </ul>
      {data && jobs.length === 0 && <p className="muted">No other job.</p>}
      <div className="actions">
        <button type="button" className="button" onClick={onClose}>
          Cancel
        </button>
      </div>
    </Dialog>
  );
}
