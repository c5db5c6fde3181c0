// What the job does, and how far it is.
import { useQuery } from "@tanstack/react-query";

import { tailQuery } from "../../api/queries";
import { ended, type JobDetail } from "../../api/types";
import { Bar } from "../../ui/Bar";
import { span } from "../../ui/format";
import { splitReason } from "../../ui/quoted";
import { useNow } from "../../ui/useNow";
import { progressOf } from "./progressOf";

export function Progress({ job }: { job: JobDetail }) {
  const trains = job.state === "PROCESSING";
  const now = useNow(trains);
  const { data } = useQuery({ ...tailQuery(job.id, !ended(job)), enabled: trains && !job.removed?.logs });
  const progress = trains ? progressOf(data?.lines.map((line) => line.text) ?? []) : null;
  const attempt = job.attempts.at(-1);
  const seconds = progress && attempt ? (now - new Date(attempt.created_at).getTime()) / 1000 : 0;
  const share = progress ? progress.done / progress.total : 0;
  return (
    <>
      <p>{splitReason(job.reason).headline}</p>
      {progress && (
        <div className="progress">
          <Bar share={share} label="Progress" />
          <span className="numbers">
            {progress.what} {progress.done.toLocaleString()} of {progress.total.toLocaleString()}
            {share > 0 && share < 1 && <span className="muted">, about {span((seconds * (1 - share)) / share)} left</span>}
          </span>
        </div>
      )}
    </>
  );
}
