// Why a job failed: the exception first, then its lines of the log, then what to do.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { json } from "../../api/client";
import type { JobDetail, LogLine, LogPage } from "../../api/types";
import { AnsiText } from "../../ui/AnsiText";
import { Loading } from "../../ui/Loading";
import { Prose } from "../../ui/Prose";
import { excerpt, failedLearner, findException, readFailure, usualAdvice } from "./failure";

const TAIL = 80; // lines among which the traceback is looked for

export function FailurePanel({ job }: { job: JobDetail }) {
  const failure = readFailure(job.reason);
  const { attempt, learner } = failedLearner(job);
  const hasLog = failure.lines.length > 0 && !job.removed?.logs && attempt !== undefined;
  const { data, isPending } = useQuery({
    queryKey: ["log tail", job.id, attempt, learner, TAIL],
    queryFn: ({ signal }) => {
      const query = new URLSearchParams({ tail: String(TAIL), limit: String(TAIL), attempt: String(attempt) });
      if (learner !== undefined) query.set("learner", String(learner));
      return json<LogPage>(`/jobs/${encodeURIComponent(job.id)}/logs?${query}`, "GET", undefined, signal);
    },
    enabled: hasLog,
    staleTime: Infinity,
  });
  const numbered = data?.lines.length ? excerpt(data.lines) : null;
  const texts = numbered?.map((line) => line.text) ?? failure.lines;
  const exception = findException(texts);
  const line = numbered ? (exception && numbered[exception.at]) || numbered.at(-1) : undefined;
  const advice = failure.advice || usualAdvice(failure);
  return (
    <section className="failure" aria-labelledby="failure">
      <div className="failure-head">
        <h2 id="failure" className="break">
          {exception ? (
            <>
              <span className="mono">{exception.name}</span>
              {exception.message && <span className="failure-message">: {exception.message}</span>}
            </>
          ) : (
            failure.headline || "The job failed"
          )}
        </h2>
        <p className="failure-how">
          {exception && <span className="break">{failure.headline}</span>}
          {job.error_code && <code title="FfDL's code for this error">{job.error_code}</code>}
          {line && (
            <Link to="/jobs/$jobId/logs" params={{ jobId: job.id }} search={{ line: line.n }}>
              Line {line.n.toLocaleString()} of the log
            </Link>
          )}
        </p>
      </div>
      {hasLog && isPending ? <Loading rows={4} /> : texts.length > 0 && <Lines numbered={numbered} texts={texts} at={exception?.at ?? null} />}
      <p className="failure-advice">
        <strong>What to do</strong> <Prose text={advice} />
      </p>
    </section>
  );
}

function Lines({ numbered, texts, at }: { numbered: readonly LogLine[] | null; texts: readonly string[]; at: number | null }) {
  return (
    // Scrolled by keys.
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <div className="failure-lines" role="region" aria-label="The end of the log" tabIndex={0}>
      <pre>
        {texts.map((text, place) => (
          <span key={numbered?.[place]?.n ?? place} className={place === at ? "failure-line at" : "failure-line"}>
            <span className="failure-number" aria-hidden="true">{numbered?.[place]?.n ?? ""}</span>
            <AnsiText text={text} />
            {"\n"}
          </span>
        ))}
      </pre>
    </div>
  );
}
