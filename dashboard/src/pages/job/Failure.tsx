// Why a job failed: the exception first, the lines around it, where they stand in the log, and what to do.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { tailQuery } from "../../api/queries";
import type { JobDetail } from "../../api/types";
import { useRights } from "../../app/rights";
import { plain, splitReason } from "../../ui/quoted";
import { Output } from "../../ui/Output";
import { advise, findException } from "./advice";

export function Failure({ job }: { job: JobDetail }) {
  const { edit } = useRights();
  const { headline, lines } = splitReason(job.reason);
  const at = findException(lines);
  const exception = at < 0 ? null : plain(lines[at] ?? "").trim();
  const advice = advise(job.reason, job.error_code);
  return (
    <section className="note bad failure" aria-labelledby="failure">
      <h2 id="failure">{exception ?? headline}</h2>
      <p>
        {exception && headline}
        {job.error_code && <span className="muted mono"> {job.error_code}</span>}
      </p>
      {lines.length > 0 && <Output lines={lines} label="Its last lines" />}
      {advice && (
        <p>
          <strong>What to do.</strong> {advice}
        </p>
      )}
      <div className="row">
        {exception && <ToLine job={job} exception={exception} learner={learnerOf(headline)} />}
        {edit && (
          <Link to="/submit" search={{ from: job.id }} className="button small">
            Rerun with changes …
          </Link>
        )}
      </div>
    </section>
  );
}

const learnerOf = (headline: string) => Number(/\blearner (\d+)\b/.exec(headline)?.[1] ?? 1);

/** To the exception's own line of the log, if it is near the end; else to the end. */
function ToLine({ job, exception, learner }: { job: JobDetail; exception: string; learner: number }) {
  const of = { learner, attempt: job.attempt };
  const { data } = useQuery(tailQuery(job.id, false, of));
  // The reason has no more than the beginning of a long line.
  const line = data?.lines.findLast((row) => plain(row.text).trim().startsWith(exception))?.n;
  return (
    <Link
      to="/jobs/$jobId/logs"
      params={{ jobId: job.id }}
      search={{ ...of, ...(line === undefined ? {} : { line }) }}
      className="button small"
    >
      {line === undefined ? "To the end of the log" : `To line ${line.toLocaleString()} of the log`}
    </Link>
  );
}
