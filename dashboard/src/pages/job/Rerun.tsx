import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { type FormEvent, useMemo, useState } from "react";

import { api, body } from "../../api/client";
import { manifestQuery } from "../../api/queries";
import type { JobDetail } from "../../api/types";
import { ManifestEditor } from "../../ui/ManifestEditor";
import { Dialog, ErrorNote, Loading } from "../../ui/parts";
import { toast } from "../../ui/toast";
import { changesBetween } from "./changes";

/** Submit the job again: as it was, or with its manifest edited. Code and credentials stay on the server. */
export function Rerun({ job, onClose }: { job: JobDetail; onClose: () => void }) {
  const { data: manifest, error: unread } = useQuery(manifestQuery(job.id));
  const [edited, setEdited] = useState<string | null>(null);
  const [fromCheckpoint, setFromCheckpoint] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const queries = useQueryClient();
  const navigate = useNavigate();
  const changes = useMemo(() => changesBetween(manifest ?? "", edited ?? manifest ?? ""), [manifest, edited]);

  const run = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const made = await body(
        api.POST("/api/v1/jobs/{job_id}/rerun", {
          params: { path: { job_id: job.id } },
          body: { set: changes.set, from_checkpoint: fromCheckpoint },
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
        <p className="muted">
          A new job with the same code{edited === null ? "" : " and the changed manifest"}; credentials stay as they
          are. With other code: <Link to="/submit" search={{ from: job.id }}>submit a job like this one</Link>.
        </p>
        <ErrorNote error={unread} />
        {manifest === undefined ? (
          !unread && <Loading />
        ) : (
          <ManifestEditor
            label="Manifest of the new job"
            value={edited ?? manifest}
            onChange={setEdited}
            invalid={changes.problems.length > 0}
          />
        )}
        <div role="status">
          {changes.problems.length > 0 ? (
            <ul className="note warn plain">
              {changes.problems.map((one) => (
                <li key={one} className="break">
                  {one}
                </li>
              ))}
            </ul>
          ) : (
            <ul className="plain muted">
              {changes.shown.map((one) => (
                <li key={one} className="break mono">
                  {one}
                </li>
              ))}
              {changes.shown.length === 0 && <li>No changes: the same again.</li>}
            </ul>
          )}
        </div>
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
          <button type="submit" className="button primary" disabled={busy || changes.problems.length > 0}>
            {busy ? "Submitting …" : "Rerun"}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
