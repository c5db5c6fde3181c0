// The end of the log, as far as it fits.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { tailQuery } from "../../api/queries";
import { ended, type JobDetail } from "../../api/types";
import { ErrorNote } from "../../ui/ErrorNote";
import { Loading } from "../../ui/Loading";
import { Output } from "../../ui/Output";

const SHOWN = 10;

export function LastLines({ job }: { job: JobDetail }) {
  const { data, error } = useQuery({ ...tailQuery(job.id, !ended(job)), enabled: job.attempt > 0 && !job.removed?.logs });
  // A failed job's are in the panel of its failure.
  if (job.attempt === 0 || job.removed?.logs || job.state === "FAILED") return null;
  const lines = data?.lines.slice(-SHOWN) ?? [];
  return (
    <section className="card" aria-labelledby="last-lines">
      <div className="row spread">
        <h2 id="last-lines">Last lines of the log</h2>
        <Link to="/jobs/$jobId/logs" params={{ jobId: job.id }}>
          {data?.total ? `All ${data.total.toLocaleString()} lines` : "Log"}
        </Link>
      </div>
      <ErrorNote error={error} />
      {lines.length > 0 ? (
        <Output lines={lines.map((line) => line.text)} label="Last lines" />
      ) : data ? (
        <p className="muted">{ended(job) ? "It has printed nothing." : "Nothing printed yet."}</p>
      ) : (
        !error && <Loading rows={3} />
      )}
    </section>
  );
}
