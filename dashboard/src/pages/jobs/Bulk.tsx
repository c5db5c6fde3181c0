import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";

import { api } from "../../api/client";
import { ended, type Job } from "../../api/types";
import { useRights } from "../../app/rights";
import { MOST_JOBS } from "../../charts/search";
import { Confirm } from "../../ui/Dialog";
import { plural } from "../../ui/format";
import { toast } from "../../ui/toast";

/** What can be done with the jobs that are selected. */
export function Bulk({ jobs, clear }: { jobs: readonly Job[]; clear: () => void }) {
  const [asked, setAsked] = useState<"halt" | "delete" | null>(null);
  const { edit } = useRights();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const running = jobs.filter((job) => !ended(job));
  const concerned = asked === "halt" ? running : jobs;

  const act = async () => {
    const results = await Promise.allSettled(
      concerned.map((job) =>
        asked === "halt"
          ? api.POST("/api/v1/jobs/{job_id}/halt", { params: { path: { job_id: job.id } } })
          : api.DELETE("/api/v1/jobs/{job_id}", { params: { path: { job_id: job.id } } }),
      ),
    );
    await queries.invalidateQueries({ queryKey: ["jobs"] });
    const refused = results.flatMap((result, at) =>
      result.status === "rejected" ? [`${concerned[at]?.name}: ${(result.reason as Error).message}`] : [],
    );
    const done = concerned.length - refused.length;
    if (done) toast(`${plural(done, "job")} ${asked === "halt" ? "will be halted" : "will be deleted"}`);
    if (refused.length) throw new Error(refused.join("\n"));
    clear();
  };

  return (
    <div className="bulk row" role="region" aria-label="Selected jobs">
      <strong>{plural(jobs.length, "job")} selected</strong>
      {edit && (
        <button type="button" className="button small" disabled={!running.length} onClick={() => setAsked("halt")}>
          Halt
        </button>
      )}
      <button
        type="button"
        className="button small"
        disabled={jobs.length < 2 || jobs.length > MOST_JOBS}
        title={`2 to ${MOST_JOBS} jobs`}
        onClick={() => {
          const query = jobs.map((job) => `job=${encodeURIComponent(job.id)}`).join("&");
          void navigate({ href: `/compare?${query}` });
        }}
      >
        Compare
      </button>
      {edit && (
        <button type="button" className="button small danger" onClick={() => setAsked("delete")}>
          Delete
        </button>
      )}
      <button type="button" className="button small quiet" onClick={clear}>
        Clear the selection
      </button>
      {asked && (
        <Confirm
          title={asked === "halt" ? `Halt ${plural(running.length, "job")}?` : `Delete ${plural(jobs.length, "job")}?`}
          verb={asked === "halt" ? "Halt" : "Delete"}
          danger={asked === "delete"}
          action={act}
          onClose={() => setAsked(null)}
        >
          <p>
            {asked === "halt"
              ? "Each gets its grace to save a checkpoint, and can be resumed from it."
              : "Jobs that run are stopped first. Logs, events and checkpoints go with them; there is no way back."}
          </p>
          <ul>
            {concerned.slice(0, 10).map((job) => (
              <li key={job.id} className="break">
                {job.name} <span className="muted mono">{job.id}</span>
              </li>
            ))}
            {concerned.length > 10 && <li>and {concerned.length - 10} more</li>}
          </ul>
        </Confirm>
      )}
    </div>
  );
}
