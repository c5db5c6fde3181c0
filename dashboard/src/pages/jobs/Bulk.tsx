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

interface Action {
  verb: string;
  /** Said of jobs when it is done. */
  done: string;
  /** The jobs that it can be done to. */
  fits: (job: Job) => boolean;
  run: (id: string) => Promise<unknown>;
  /** What it means. */
  means: string;
  danger?: true;
}

const path = (id: string) => ({ params: { path: { job_id: id } } });

const ACTIONS: readonly Action[] = [
  {
    verb: "Halt",
    done: "will be halted",
    fits: (job) => !ended(job),
    run: (id) => api.POST("/api/v1/jobs/{job_id}/halt", path(id)),
    means: "Each gets its grace to save a checkpoint, and can be resumed from it.",
  },
  {
    verb: "Resume",
    done: "will go on",
    fits: (job) => job.state === "HALTED" || job.state === "FAILED",
    run: (id) => api.POST("/api/v1/jobs/{job_id}/resume", path(id)),
    means: "Another attempt of each is queued, which begins with the job's last complete checkpoint.",
  },
  {
    verb: "Rerun",
    done: "will run again",
    fits: () => true,
    run: (id) => api.POST("/api/v1/jobs/{job_id}/rerun", path(id)),
    means: "Each is submitted again, as a new job with the same manifest and code.",
  },
  {
    verb: "Delete",
    done: "will be deleted",
    fits: () => true,
    run: (id) => api.DELETE("/api/v1/jobs/{job_id}", path(id)),
    means: "Jobs that run are stopped first. Logs, events and checkpoints go with them; there is no way back.",
    danger: true,
  },
];
const [REMOVAL, ...OTHERS] = [...ACTIONS].reverse();

/** What can be done with the jobs that are selected. */
export function Bulk({ jobs, clear }: { jobs: readonly Job[]; clear: () => void }) {
  const [asked, setAsked] = useState<Action | null>(null);
  const { edit } = useRights();
  const navigate = useNavigate();
  const button = (action: Action) => (
    <button
      key={action.verb}
      type="button"
      className={action.danger ? "button small danger" : "button small"}
      disabled={!jobs.some(action.fits)}
      onClick={() => setAsked(action)}
    >
      {action.verb}
    </button>
  );
  return (
    <div className="bulk row" role="region" aria-label="Selected jobs">
      <strong>{plural(jobs.length, "job")} selected</strong>
      {edit && [...OTHERS].reverse().map(button)}
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
      {edit && REMOVAL && button(REMOVAL)}
      <button type="button" className="button small quiet" onClick={clear}>
        Clear the selection
      </button>
      {asked && <Question action={asked} jobs={jobs.filter(asked.fits)} clear={clear} onClose={() => setAsked(null)} />}
    </div>
  );
}

interface QuestionProps {
  action: Action;
  jobs: readonly Job[];
  clear: () => void;
  onClose: () => void;
}

function Question({ action, jobs, clear, onClose }: QuestionProps) {
  const queries = useQueryClient();
  const act = async () => {
    const results = await Promise.allSettled(jobs.map((job) => action.run(job.id)));
    await queries.invalidateQueries({ queryKey: ["jobs"] });
    const refused = results.flatMap((result, at) =>
      result.status === "rejected" ? [`${jobs[at]?.name}: ${(result.reason as Error).message}`] : [],
    );
    const done = jobs.length - refused.length;
    if (done) toast(`${plural(done, "job")} ${action.done}`);
    if (refused.length) throw new Error(refused.join("\n"));
    clear();
  };
  return (
    <Confirm
      title={`${action.verb} ${plural(jobs.length, "job")}?`}
      verb={action.verb}
      danger={action.danger ?? false}
      action={act}
      onClose={onClose}
    >
      <p>{action.means}</p>
      <ul>
        {jobs.slice(0, 10).map((job) => (
          <li key={job.id} className="break">
            {job.name} <span className="muted mono">{job.id}</span>
          </li>
        ))}
        {jobs.length > 10 && <li>and {jobs.length - 10} more</li>}
      </ul>
    </Confirm>
  );
}
