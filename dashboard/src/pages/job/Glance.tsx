// The parts of a job's overview that show what it is doing: its use of the machine, and the end of its log.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { json } from "../../api/client";
import { LIVE } from "../../api/queries";
import { ended, type JobDetail, type LogPage } from "../../api/types";
import { seriesQuery } from "../../charts/queries";
import { AnsiText } from "../../ui/AnsiText";
import { usageOf } from "./usage";

/** How much of what was asked for is used. */
export function UsageCard({ job }: { job: JobDetail }) {
  const over = ended(job);
  const { data } = useQuery(seriesQuery(job.id, "system", !over));
  const usage = usageOf(job, data?.series ?? [], over);
  if (!usage.length) return null;
  return (
    <section className="card" aria-labelledby="usage">
      <div className="card-head">
        <h2 id="usage">{job.learners > 1 ? "Used by the busiest learner" : "Used"}</h2>
        <Link to="/jobs/$jobId/system" params={{ jobId: job.id }}>
          Charts
        </Link>
      </div>
      <dl className="usage">
        {usage.map(({ name, now, peak, text }) => (
          <div key={name} className="usage-row">
            <dt>{name}</dt>
            <dd>
              <span className="usage-bar" aria-hidden="true" title={`at most ${Math.round(peak * 100)} %`}>
                <span className="usage-peak" style={{ width: `${Math.min(100, peak * 100)}%` }} />
                {!over && <span className="usage-now" style={{ width: `${Math.min(100, now * 100)}%` }} />}
              </span>
              <span className="numbers">{text}</span>
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

const LINES = 10;

/** The newest lines of the log. */
export function LogTail({ job }: { job: JobDetail }) {
  const { data } = useQuery({
    queryKey: ["log tail", job.id, LINES],
    queryFn: ({ signal }) =>
      json<LogPage>(`/jobs/${encodeURIComponent(job.id)}/logs?tail=${LINES}&limit=${LINES}`, "GET", undefined, signal),
    refetchInterval: ended(job) ? false : LIVE,
  });
  if (!data?.lines.length) return null;
  return (
    <section className="card" aria-labelledby="tail">
      <div className="card-head">
        <h2 id="tail">End of the log</h2>
        <Link to="/jobs/$jobId/logs" params={{ jobId: job.id }}>
          All {data.total.toLocaleString()} lines
        </Link>
      </div>
      {/* Scrolled by keys. */}
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
      <pre className="tail" tabIndex={0} role="region" aria-label="The newest lines">
        {data.lines.map((line) => (
          <span key={line.n}>
            {job.learners > 1 && <span className={`learner-${line.learner % 6}`}>{line.learner} </span>}
            <AnsiText text={line.text} />
            {"\n"}
          </span>
        ))}
      </pre>
    </section>
  );
}
