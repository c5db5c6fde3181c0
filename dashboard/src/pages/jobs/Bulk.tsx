import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";

import { api } from "../../api/client";
import { ended, type Job } from "../../api/types";
import { useRights } from "../../app/rights";
import { MOST_JOBS } from "../../charts/search";
import { Confirm } from "../../ui/Dialog";
import { FormDialog } from "../../ui/FormDialog";
import { plural } from "../../ui/format";
import { toast } from "../../ui/toast";
import { readLabels } from "./labels";

interface Action {
  verb: string;
  /** Whether it means anything for this job. */
  fits: (job: Job) => boolean;
  run: (id: string) => Promise<unknown>;
  /** What it does with each job, and what has been done once the API has accepted it. */
  about: string;
  done: string;
  danger?: true;
  /** Done at once, without a question. */
  light?: true;
}

const path = (id: string) => ({ params: { path: { job_id: id } } });
const ACTIONS: readonly Action[] = [
  {
    verb: "Halt",
    fits: (job) => !ended(job),
    run: (id) => api.POST("/api/v1/jobs/{job_id}/halt", path(id)),
    about: "Each gets its grace to save a checkpoint, and can be resumed from it.",
    done: "will be halted",
  },
  {
    verb: "Resume",
    fits: (job) => job.state === "HALTED" || job.state === "FAILED",
    run: (id) => api.POST("/api/v1/jobs/{job_id}/resume", path(id)),
    about: "Another attempt of each is queued, which begins with the last complete checkpoint.",
    done: "will go on",
  },
  {
    verb: "Rerun",
    fits: () => true,
    run: (id) => api.POST("/api/v1/jobs/{job_id}/rerun", path(id)),
    about: "Each is submitted again as a new job, with the same manifest, code and credentials.",
    done: "submitted again",
  },
  {
    verb: "Pin",
    fits: (job) => !job.pinned,
    run: (id) => api.PATCH("/api/v1/jobs/{job_id}", { ...path(id), body: { pinned: true } }),
    about: "",
    done: "pinned",
    light: true,
  },
  {
    verb: "Unpin",
    fits: (job) => job.pinned === true,
    run: (id) => api.PATCH("/api/v1/jobs/{job_id}", { ...path(id), body: { pinned: false } }),
    about: "",
    done: "no longer pinned",
    light: true,
  },
  {
    verb: "Delete",
    fits: () => true,
    run: (id) => api.DELETE("/api/v1/jobs/{job_id}", path(id)),
    about: "Jobs that run are stopped first. Logs, events and checkpoints go with them; there is no way back.",
    done: "will be deleted",
    danger: true,
  },
];

/** What can be done with the jobs that are selected: a bar over the page's end, so that the table stays where it is. */
export function Bulk({ jobs, clear }: { jobs: readonly Job[]; clear: () => void }) {
  const [asked, setAsked] = useState<Action | null>(null);
  const { edit } = useRights();
  const navigate = useNavigate();
  const queries = useQueryClient();
  const [labelling, setLabelling] = useState(false);
  // What can't be done with any of them is disabled. Of Pin and Unpin, the one that does nothing is left out.
  const offered = (action: Action) => !action.danger && (!action.light || jobs.some(action.fits));
  const choose = (action: Action) => {
    if (!action.light) setAsked(action);
    else perform(action, jobs.filter(action.fits), queries).then(clear, (error: Error) => toast(error.message));
  };
  return (
    <div className="bulk row" role="region" aria-label="Selected jobs">
      <strong>{plural(jobs.length, "job")} selected</strong>
      {edit && ACTIONS.filter(offered).map((action) => <Button key={action.verb} {...{ action, jobs, choose }} />)}
      {edit && (
        <button type="button" className="button small" onClick={() => setLabelling(true)}>
          Label …
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
      {edit && ACTIONS.filter((action) => action.danger).map((action) => <Button key={action.verb} {...{ action, jobs, choose }} />)}
      <button type="button" className="button small quiet" onClick={clear}>
        Clear the selection
      </button>
      {labelling && <Label jobs={jobs} clear={clear} onClose={() => setLabelling(false)} />}
      {asked && <Ask action={asked} jobs={jobs.filter(asked.fits)} clear={clear} onClose={() => setAsked(null)} />}
    </div>
  );
}

function Button({ action, jobs, choose }: { action: Action; jobs: readonly Job[]; choose: (action: Action) => void }) {
  return (
    <button
      type="button"
      className={action.danger ? "button small danger" : "button small"}
      disabled={!jobs.some(action.fits)}
      onClick={() => choose(action)}
    >
      {action.verb}
    </button>
  );
}

/** Do it with each. Raises an error that names the jobs that refused it. */
async function perform({ run, done }: Pick<Action, "run" | "done">, jobs: readonly Job[], queries: QueryClient) {
  const results = await Promise.allSettled(jobs.map((job) => run(job.id)));
  await queries.invalidateQueries({ queryKey: ["jobs"] });
  const refused = results.flatMap((result, at) =>
    result.status === "rejected" ? [`${jobs[at]?.name}: ${(result.reason as Error).message}`] : [],
  );
  if (refused.length < jobs.length) toast(`${plural(jobs.length - refused.length, "job")} ${done}`);
  if (refused.length) throw new Error(refused.join("\n"));
}

function Label({ jobs, clear, onClose }: { jobs: readonly Job[]; clear: () => void; onClose: () => void }) {
  const queries = useQueryClient();
  const label = async (values: Record<string, string>) => {
    const labels = readLabels(values["labels"] ?? "");
    if (typeof labels === "string") throw new Error(labels);
    const run = (id: string) => api.PATCH("/api/v1/jobs/{job_id}", { ...path(id), body: { labels } });
    await perform({ run, done: "labelled" }, jobs, queries);
    clear();
  };
  return (
    <FormDialog
      title={`Label ${plural(jobs.length, "job")}`}
      verb="Label"
      fields={[
        {
          name: "labels",
          label: "Labels",
          placeholder: "team=vision, old-",
          hint: "key=value sets a label, key- removes it. Other labels stay.",
          suggested: [...new Set(jobs.flatMap((job) => Object.entries(job.labels).map(([key, text]) => `${key}=${text}`)))],
          required: true,
        },
      ]}
      submit={label}
      onClose={onClose}
    />
  );
}

const LISTED = 10;

function Ask({ action, jobs, clear, onClose }: { action: Action; jobs: readonly Job[]; clear: () => void; onClose: () => void }) {
  const queries = useQueryClient();
  const act = async () => {
    await perform(action, jobs, queries);
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
      <p>{action.about}</p>
      <ul>
        {jobs.slice(0, LISTED).map((job) => (
          <li key={job.id} className="break">
            {job.name} <span className="muted mono">{job.id}</span>
          </li>
        ))}
        {jobs.length > LISTED && <li>and {jobs.length - LISTED} more</li>}
      </ul>
    </Confirm>
  );
}
