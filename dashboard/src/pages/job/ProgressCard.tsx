import { useQuery } from "@tanstack/react-query";

import type { JobDetail } from "../../api/types";
import { seriesQuery } from "../../charts/queries";
import { clock, dateTime, span, value } from "../../ui/format";
import { useNow } from "../../ui/useNow";
import { progressOf } from "./progress";

const DAY = 86_400_000; // ms

/** How far a running job is, and when it ends at its pace. */
export function ProgressCard({ job }: { job: JobDetail }) {
  const { data } = useQuery(seriesQuery(job.id, "user", true));
  const now = useNow(true);
  const progress = progressOf(job, data?.series ?? []);
  if (!progress) return null;
  const { unit, done, total, source, ends } = progress;
  const count = (of: number) => (Number.isInteger(of) ? of.toLocaleString() : value(Math.round(of * 100) / 100));
  const left = ends === null ? null : ends - now;
  return (
    <section className="card progress" aria-labelledby="progress">
      <div className="card-head">
        <h2 id="progress">Progress</h2>
        {left !== null && ends !== null && (
          <span>
            {left > 0 ? (
              <>
                about <strong className="numbers">{span(left / 1000)}</strong> left, until{" "}
                {left < DAY ? clock(ends) : dateTime(ends)}
              </>
            ) : (
              "about to end"
            )}
          </span>
        )}
      </div>
      {total === null ? (
        <p>
          {unit === "step" ? "Step" : "Epoch"} <strong className="numbers">{count(done)}</strong>
        </p>
      ) : (
        <>
          <progress max={total} value={done} aria-labelledby="progress" />
          <p className="muted">
            {unit === "step" ? "Step" : "Epoch"} <strong className="numbers">{count(done)}</strong> of{" "}
            <span className="numbers">{count(total)}</span> ({Math.floor((100 * done) / total)} %). The number of {unit}s is from{" "}
            {source}, and the time from the pace since the attempt&apos;s first point.
          </p>
        </>
      )}
    </section>
  );
}
