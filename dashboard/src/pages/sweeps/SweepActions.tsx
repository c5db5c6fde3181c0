import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api } from "../../api/client";
import { useRights } from "../../app/rights";
import { Confirm } from "../../ui/Dialog";
import { toast } from "../../ui/toast";
import { over, type Sweep } from "./trials";

export function SweepActions({ sweep }: { sweep: Sweep }) {
  const [stopping, setStopping] = useState(false);
  const [busy, setBusy] = useState(false);
  const { edit } = useRights();
  const queries = useQueryClient();
  const path = { params: { path: { sweep_id: sweep.id } } };
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

  if (!edit || over(sweep)) return null;
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
      {sweep.state !== "STOPPING" && (
        <button type="button" className="button danger" onClick={() => setStopping(true)}>
          Stop
        </button>
      )}
      {stopping && (
        <Confirm title={`Stop ${sweep.name}?`} verb="Stop" danger action={stop} onClose={() => setStopping(false)}>
          <p>Trials under way are halted, and no other begins. A stopped sweep can&apos;t go on; a paused one can.</p>
        </Confirm>
      )}
    </div>
  );
}
