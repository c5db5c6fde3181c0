import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";

import { api, body } from "../../api/client";
import { useRights } from "../../app/rights";
import { Confirm } from "../../ui/Dialog";
import { toast } from "../../ui/toast";
import type { Schedule } from "./queries";

export function ScheduleActions({ schedule }: { schedule: Schedule }) {
  const [deleting, setDeleting] = useState(false);
  const [busy, setBusy] = useState(false);
  const { edit } = useRights();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const path = { params: { path: { schedule_id: schedule.id } } };

  const act = async (action: () => Promise<string>) => {
    setBusy(true);
    try {
      toast(await action());
      await queries.invalidateQueries({ queryKey: ["schedule", schedule.id] });
    } catch (error) {
      toast((error as Error).message, "bad");
    } finally {
      setBusy(false);
    }
  };
  const start = async () => `${(await body(api.POST("/api/v1/schedules/{schedule_id}/starts", path))).job} is queued`;
  const pause = async () => {
    await api.POST("/api/v1/schedules/{schedule_id}/pause", path);
    return "The schedule starts no jobs";
  };
  const resume = async () => {
    await api.POST("/api/v1/schedules/{schedule_id}/resume", path);
    return "The schedule starts jobs again";
  };
  const remove = async () => {
    await api.DELETE("/api/v1/schedules/{schedule_id}", path);
    toast("The schedule is deleted");
    await queries.invalidateQueries({ queryKey: ["schedules"] });
    await navigate({ to: "/schedules" });
  };

  if (!edit) return null;
  return (
    <div className="actions">
      <button type="button" className="button" disabled={busy} onClick={() => void act(start)}>
        Start a job now
      </button>
      {schedule.state === "ACTIVE" ? (
        <button type="button" className="button" disabled={busy} onClick={() => void act(pause)}>
          Pause
        </button>
      ) : (
        <button type="button" className="button" disabled={busy} onClick={() => void act(resume)}>
          Resume
        </button>
      )}
      <button type="button" className="button danger" onClick={() => setDeleting(true)}>
        Delete
      </button>
      {deleting && (
        <Confirm title={`Delete ${schedule.name}?`} verb="Delete" danger action={remove} onClose={() => setDeleting(false)}>
          <p>No further job starts. Jobs that have started stay.</p>
        </Confirm>
      )}
    </div>
  );
}
