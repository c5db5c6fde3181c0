// What users say about a job, edited where it stands.
import { useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";

import { api } from "../../api/client";
import type { JobDetail } from "../../api/types";
import type { components } from "../../api/schema";
import { useRights } from "../../app/rights";
import { ErrorNote } from "../../ui/ErrorNote";
import { Fact } from "../../ui/Fact";
import { Notes } from "../../ui/Notes";
import { EditButton, TextForm } from "../../ui/TextForm";
import { type LabelChanges, readLabels } from "../jobs/labels";

type Changes = components["schemas"]["EditBody"];

function useEdit(job: JobDetail): (changes: Partial<Changes>) => Promise<void> {
  const queries = useQueryClient();
  return async (changes) => {
    await api.PATCH("/api/v1/jobs/{job_id}", { params: { path: { job_id: job.id } }, body: changes });
    await Promise.all([
      queries.invalidateQueries({ queryKey: ["job", job.id] }),
      queries.invalidateQueries({ queryKey: ["manifest", job.id] }),
      queries.invalidateQueries({ queryKey: ["jobs"] }),
    ]);
  };
}

export function Description({ job }: { job: JobDetail }) {
  const [editing, setEditing] = useState(false);
  const { edit } = useRights();
  const change = useEdit(job);
  if (!edit && !job.description) return null;
  return (
    <Fact name="Description">
      {editing ? (
        <TextForm
          name="Description"
          text={job.description}
          rows={4}
          most={16_384}
          save={(description) => change({ description })}
          close={() => setEditing(false)}
        />
      ) : (
        <>
          <span className="own-text">{job.description || <span className="muted">none</span>}</span>{" "}
          {edit && <EditButton what="description" open={() => setEditing(true)} />}
        </>
      )}
    </Fact>
  );
}

export function Labels({ job }: { job: JobDetail }) {
  const { edit } = useRights();
  const change = useEdit(job);
  const labels = Object.entries(job.labels);
  const [typed, setTyped] = useState("");
  const [error, setError] = useState<unknown>(null);
  const run = async (changes: LabelChanges | string) => {
    setError(null);
    try {
      if (typeof changes === "string") throw new Error(changes);
      await change({ labels: changes });
      setTyped("");
    } catch (problem) {
      setError(problem);
    }
  };
  if (!edit && !labels.length) return null;
  return (
    <Fact name="Labels">
      <span className="row labels">
        {labels.map(([key, text]) => (
          <span key={key} className="chip label">
            <Link to="/" search={{ label: [`${key}=${text}`] }}>
              {key}={text}
            </Link>
            {edit && (
              <button type="button" aria-label={`Remove the label ${key}`} onClick={() => void run({ [key]: null })}>
                ×
              </button>
            )}
          </span>
        ))}
      </span>
      {edit && (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void run(readLabels(typed));
          }}
        >
          <input
            className="input add-label"
            aria-label="Add a label (key=value)"
            placeholder="Add: key=value"
            value={typed}
            onChange={(event) => setTyped(event.target.value)}
          />
        </form>
      )}
      <ErrorNote error={error} />
    </Fact>
  );
}

export function JobNotes({ job }: { job: JobDetail }) {
  const { edit } = useRights();
  const change = useEdit(job);
  return (
    <Notes
      text={job.notes}
      empty="What you found out with this job, for everybody in the project."
      edit={edit}
      save={(notes) => change({ notes })}
    />
  );
}
