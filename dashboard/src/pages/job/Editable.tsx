// What users say about a job, edited where it stands.
import { useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type FormEvent, type ReactNode, useState } from "react";

import { api } from "../../api/client";
import type { JobDetail } from "../../api/types";
import type { components } from "../../api/schema";
import { useRights } from "../../app/rights";
import { ErrorNote } from "../../ui/ErrorNote";
import { Fact } from "../../ui/Fact";
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

interface FieldProps {
  name: string;
  text: string;
  rows: number;
  most: number;
  save: (text: string) => Promise<void>;
  close: () => void;
}

/** A text that is being edited. Escape leaves it as it was; Ctrl+Enter saves it. */
function TextForm({ name, text, rows, most, save, close }: FieldProps) {
  const [typed, setTyped] = useState(text);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event?: FormEvent) => {
    event?.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await save(typed);
      close();
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return (
    <form className="stack edit" onSubmit={(event) => void submit(event)}>
      <textarea
        aria-label={name}
        // The user has just asked to type here.
        // eslint-disable-next-line jsx-a11y/no-autofocus
        autoFocus
        rows={rows}
        maxLength={most}
        value={typed}
        onChange={(event) => setTyped(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") close();
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void submit();
        }}
      />
      <ErrorNote error={error} />
      <div className="actions">
        <button type="button" className="button small" onClick={close}>
          Cancel
        </button>
        <button type="submit" className="button small primary" disabled={busy}>
          Save
        </button>
      </div>
    </form>
  );
}

function EditButton({ what, open }: { what: string; open: () => void }) {
  return (
    <button type="button" className="button quiet small edit-button" onClick={open}>
      Edit<span className="visually-hidden"> the {what}</span>
    </button>
  );
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

/** Notes of the project's users. */
export function Notes({ job }: { job: JobDetail }): ReactNode {
  const [editing, setEditing] = useState(false);
  const { edit } = useRights();
  const change = useEdit(job);
  if (!edit && !job.notes) return null;
  return (
    <section className="card" aria-labelledby="notes">
      <div className="card-head">
        <h2 id="notes">Notes</h2>
        {edit && !editing && <EditButton what="notes" open={() => setEditing(true)} />}
      </div>
      {editing ? (
        <TextForm
          name="Notes"
          text={job.notes}
          rows={8}
          most={100_000}
          save={(notes) => change({ notes })}
          close={() => setEditing(false)}
        />
      ) : job.notes ? (
        <p className="own-text">{job.notes}</p>
      ) : (
        <p className="muted">What you found out with this job, for everybody in the project.</p>
      )}
    </section>
  );
}
