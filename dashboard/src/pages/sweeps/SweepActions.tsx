import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";

import { api } from "../../api/client";
import { useRights } from "../../app/rights";
import { Confirm } from "../../ui/Dialog";
import { toast } from "../../ui/toast";
import { over, type Sweep } from "./trials";

export function SweepActions({ sweep }: { sweep: Sweep }) {
  const [asked, setAsked] = useState<"stop" | "delete" | null>(null);
  const [jobs, setJobs] = useState(false);
  const [busy, setBusy] = useState(false);
  const { edit } = useRights();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const path = { params: { path: { sweep_id: sweep.id } } };
  const close = () => setAsked(null);
  const refresh = () => queries.invalidateQueries({ queryKey: ["sweep", sweep.id] });

  const steer = async (action: "pause" | "resume") => {
    setBusy(true);
    try {
      await (action === "pause"
        ? api.POST("/api/v1/sweeps/{sweep_id}/pause", path)
        : api.POST("/api/v1/sweeps/{sweep_id}/resume", path));
      toast(action === "pause" ? "The sweep begins no new trials" : "The sweep goes on");
      await refresh();
    } catch (error) {
      toast((error as Error).message, "bad");
    } finally {
      setBusy(false);
    }
  };
  const stop = async () => {
    await api.POST("/api/v1/sweeps/{sweep_id}/stop", path);
    toast("The sweep will be stopped");
    await refresh();
  };

  const remove = async () => {
    await api.DELETE("/api/v1/sweeps/{sweep_id}", { params: { ...path.params, query: { jobs } } });
    toast("The sweep is deleted");
    await queries.invalidateQueries({ queryKey: ["sweeps"] });
    await navigate({ to: "/sweeps" });
  };

  if (!edit) return null;
  return (
    <div className="actions">
      {sweep.state === "RUNNING" && (
        <button type="button" className="button" disabled={busy} onClick={() => void steer("pause")}>
          Pause
        </button>
      )}
      {sweep.state === "PAUSED" && (
        <button type="button" className="button" disabled={busy} onClick={() => void steer("resume")}>
          Resume
        </button>
      )}
      {!over(sweep) && sweep.state !== "STOPPING" && (
        <button type="button" className="button danger" onClick={() => setAsked("stop")}>
          Stop
        </button>
      )}
      {over(sweep) && (
        <button type="button" className="button danger" onClick={() => setAsked("delete")}>
          Delete
        </button>
      )}
      {asked === "delete" && (
        <Confirm title={`Delete ${sweep.name}?`} verb="Delete" danger action={remove} onClose={close}>
          <p>The table of its trials goes; there is no way back.</p>
          <label className="check">
            <input type="checkbox" checked={jobs} onChange={(event) => setJobs(event.target.checked)} />
            Delete the jobs of its trials, too, with their logs and results
          </label>
        </Confirm>
      )}
      {asked === "stop" && (
        <Confirm title={`Stop ${sweep.name}?`} verb="Stop" danger action={stop} onClose={close}>
          <p>Trials under way are halted, and no other begins. A stopped sweep can&apos;t go on; a paused one can.</p>
        </Confirm>
      )}
    </div>
  );
}
