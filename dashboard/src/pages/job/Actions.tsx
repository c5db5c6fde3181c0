import { useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";

import { api } from "../../api/client";
import { ended, type JobDetail } from "../../api/types";
import { useRights } from "../../app/rights";
import { Confirm } from "../../ui/Dialog";
import { toast } from "../../ui/toast";
import { RegisterButton } from "../models/Register";

type Asked = "halt" | "resume" | "delete";

export function Actions({ job }: { job: JobDetail }) {
  const [asked, setAsked] = useState<Asked | null>(null);
  const [grace, setGrace] = useState("");
  const { edit } = useRights();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const path = { params: { path: { job_id: job.id } } };
  const close = () => setAsked(null);
  const refresh = () => queries.invalidateQueries({ queryKey: ["job", job.id] });

  const halt = async () => {
    const body = grace === "" ? {} : { body: { grace_seconds: Number(grace) } };
    await api.POST("/api/v1/jobs/{job_id}/halt", { ...path, ...body });
    toast("The job will be halted");
    await refresh();
  };
  const resume = async () => {
    await api.POST("/api/v1/jobs/{job_id}/resume", path);
    toast("The job will go on");
    await refresh();
  };
  const remove = async () => {
    await api.DELETE("/api/v1/jobs/{job_id}", path);
    toast("The job will be deleted");
    await queries.invalidateQueries({ queryKey: ["jobs"] });
    await navigate({ to: "/" });
  };

  if (!edit) return null;
  const halting = job.desired === "HALTED" && !ended(job);
  return (
    <div className="actions">
      {!ended(job) && (
        <button type="button" className="button" disabled={halting} onClick={() => setAsked("halt")}>
          {halting ? "Halting …" : "Halt"}
        </button>
      )}
      {(job.state === "HALTED" || job.state === "FAILED") && (
        <button type="button" className="button" onClick={() => setAsked("resume")}>
          Resume
        </button>
      )}
      {job.state === "COMPLETED" && <RegisterButton job={job.id} models={job.models} />}
      <Link to="/submit" search={{ from: job.id }} className="button">
        Rerun …
      </Link>
      <button type="button" className="button danger" onClick={() => setAsked("delete")}>
        Delete
      </button>
      {asked === "halt" && (
        <Confirm title={`Halt ${job.name}?`} verb="Halt" action={halt} onClose={close}>
          <p>
            The program gets SIGTERM and a grace to save a checkpoint; a halted job can be resumed from its last one.
          </p>
          <label className="field">
            <span className="label">Grace in seconds</span>
            <input
              className="input"
              type="number"
              min={0}
              max={86_400}
              placeholder="the installation's"
              value={grace}
              onChange={(event) => setGrace(event.target.value)}
            />
          </label>
        </Confirm>
      )}
      {asked === "resume" && (
        <Confirm title={`Resume ${job.name}?`} verb="Resume" action={resume} onClose={close}>
          <p>Another attempt is queued, which begins with the job&apos;s last complete checkpoint.</p>
        </Confirm>
      )}
      {asked === "delete" && (
        <Confirm title={`Delete ${job.name}?`} verb="Delete" danger action={remove} onClose={close}>
          <p>
            {ended(job) ? "" : "It is stopped first. "}
            Its log, events and checkpoints go with it; there is no way back.
          </p>
        </Confirm>
      )}
    </div>
  );
}
