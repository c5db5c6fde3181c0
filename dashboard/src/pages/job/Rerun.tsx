import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";

import { api, body } from "../../api/client";
import type { JobDetail } from "../../api/types";
import { Dialog, ErrorNote } from "../../ui/parts";
import { toast } from "../../ui/toast";

/** Submit the job again: as it was, or with values of its manifest changed. */
export function Rerun({ job, onClose }: { job: JobDetail; onClose: () => void }) {
  const [changes, setChanges] = useState("");
  const [fromCheckpoint, setFromCheckpoint] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const queries = useQueryClient();
  const navigate = useNavigate();

  const run = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const made = await body(
        api.POST("/api/v1/jobs/{job_id}/rerun", {
          params: { path: { job_id: job.id } },
          body: { set: readChanges(changes), from_checkpoint: fromCheckpoint },
        }),
      );
      toast(`Submitted as ${made.id}`);
      await queries.invalidateQueries({ queryKey: ["jobs"] });
      onClose();
      await navigate({ to: "/jobs/$jobId", params: { jobId: made.id } });
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };

  return (
    <Dialog title={`Rerun ${job.name}`} onClose={onClose} wide>
      <form onSubmit={(event) => void run(event)}>
        <label className="field">
          <span className="label">Changes to the manifest, one a line</span>
          <textarea
            className="input"
            rows={5}
            spellCheck={false}
            placeholder={"learners=2\nframework.command=python train.py --epochs 20"}
            value={changes}
            onChange={(event) => setChanges(event.target.value)}
          />
        </label>
        <label className="check">
          <input
            type="checkbox"
            checked={fromCheckpoint}
            onChange={(event) => setFromCheckpoint(event.target.checked)}
          />
          Begin with the job&apos;s last complete checkpoint
        </label>
        <ErrorNote error={error} />
        <div className="actions">
          <button type="button" className="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" className="button primary" disabled={busy}>
            {busy ? "Submitting …" : "Rerun"}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** Lines `path=value`. Throws an Error that names the line that is none. */
function readChanges(text: string): Record<string, string> {
  const changes: Record<string, string> = {};
  text.split("\n").forEach((line, at) => {
    if (!line.trim()) return;
    const equals = line.indexOf("=");
    if (equals < 1) throw new Error(`line ${at + 1}: ${line.trim()} is not of the form path=value`);
    changes[line.slice(0, equals).trim()] = line.slice(equals + 1).trim();
  });
  return changes;
}
