import { Link } from "@tanstack/react-router";

import { tone } from "../../ui/StateBadge";
import type { Schedule, Start } from "./queries";

export const State = ({ name, live = false }: { name: string; live?: boolean }) => (
  <span className={`state tone-${tone(name)}${live ? " live" : ""}`}>{name}</span>
);

/** The times and the stage that start its jobs. */
export const Triggers = ({ schedule }: { schedule: Schedule }) => (
  <>
    {schedule.cron && (
      <div className="nowrap">
        <code>{schedule.cron}</code> <span className="muted">{schedule.timezone}</span>
      </div>
    )}
    {schedule.on && (
      <div>
        promotions to <code className="break">{schedule.on}</code>
      </div>
    )}
  </>
);

/** The job of a start and its state, or why there is none. */
export function StartedJob({ start }: { start: Start }) {
  if (!start.job) return <State name={start.state} live={start.state === "DUE"} />;
  return (
    <Link to="/jobs/$jobId" params={{ jobId: start.job }} className="mono nowrap">
      {start.job}
    </Link>
  );
}
