// A job's charts: what its training reported, and what its learners' machines did.
import "../../styles/charts.css";

import { useQueries, useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useState } from "react";

import { jobQuery } from "../../api/queries";
import { ended, type JobDetail } from "../../api/types";
import { chartedJob } from "../../charts/jobs";
import { Panel } from "../../charts/Panel";
import type { Kind } from "../../charts/queries";
import { type ChartSearch, MOST_JOBS } from "../../charts/search";
import { Empty } from "../../ui/Empty";
import { Removed } from "../../ui/Removed";
import { AnotherJob } from "../jobs/AnotherJob";

const metrics = getRouteApi("/inside/jobs/$jobId/metrics");
const system = getRouteApi("/inside/jobs/$jobId/system");

export function MetricsTab() {
  const { jobId } = metrics.useParams();
  const search = metrics.useSearch();
  const navigate = metrics.useNavigate();
  const change = (changes: Partial<ChartSearch>) =>
    void navigate({ search: (before) => ({ ...before, ...changes }), replace: true, resetScroll: false });
  return <Charts jobId={jobId} kind="user" search={search} change={change} />;
}

export function SystemTab() {
  const { jobId } = system.useParams();
  const search = system.useSearch();
  const navigate = system.useNavigate();
  const change = (changes: Partial<ChartSearch>) =>
    void navigate({ search: (before) => ({ ...before, ...changes }), replace: true, resetScroll: false });
  return <Charts jobId={jobId} kind="system" search={search} change={change} />;
}

interface ChartsProps {
  jobId: string;
  kind: Kind;
  search: ChartSearch;
  change: (changes: Partial<ChartSearch>) => void;
}

function Charts({ jobId, kind, search, change }: ChartsProps) {
  const { data: job } = useQuery(jobQuery(jobId));
  const others = (search.with ?? []).filter((id) => id !== jobId);
  const found = useQueries({ queries: others.map((id) => jobQuery(id)) });
  const [adding, setAdding] = useState(false);
  if (!job) return null;
  const jobs = [job, ...found.flatMap((query) => query.data ?? [])].map(chartedJob);
  const drop = (id: string) => {
    const left = others.filter((other) => other !== id);
    change({ with: left.length ? left : undefined });
  };
  const missing = others.filter((_, at) => found[at]?.error);
  return (
    <>
      <Panel jobs={jobs} kind={kind} search={search} change={change} empty={<None job={job} kind={kind} />}>
        <span className="row end">
          {others.map((id) => (
            <button key={id} type="button" className="chip" onClick={() => drop(id)}>
              <span className="visually-hidden">Without </span>
              {jobs.find((charted) => charted.id === id)?.name ?? id} <span aria-hidden="true">×</span>
            </button>
          ))}
          {others.length < MOST_JOBS - 1 && (
            <button type="button" className="button small" onClick={() => setAdding(true)}>
              With another job …
            </button>
          )}
          <a className="button small" href={exportUrl(jobId, "csv")} download>
            CSV
          </a>
          <a className="button small" href={exportUrl(jobId, "parquet")} download>
            Parquet
          </a>
        </span>
      </Panel>
      {missing.length > 0 && <p className="muted">Not found in this project: {missing.join(", ")}</p>}
      {adding && (
        <AnotherJob
          not={[jobId, ...others]}
          choose={(id) => change({ with: [...others, id] })}
          onClose={() => setAdding(false)}
        />
      )}
    </>
  );
}

const exportUrl = (id: string, format: string) => `/api/v1/jobs/${encodeURIComponent(id)}/metrics/export?format=${format}`;

function None({ job, kind }: { job: JobDetail; kind: Kind }) {
  if (job.removed?.metrics) return <Removed what="metrics" at={job.removed.metrics} />;
  if (kind === "system") {
    return (
      <Empty title={ended(job) ? "No system metrics" : "No system metrics yet"}>
        <p>Each learner reports its CPU, memory, disk, network and GPUs every few seconds while its program runs.</p>
      </Empty>
    );
  }
  return (
    <Empty title={ended(job) ? "No metrics" : "No metrics yet"}>
      <p>One line in the training code makes a chart here:</p>
      <pre className="sample">{"from weft_trainer import log_metrics\n\nlog_metrics(step=step, loss=loss, accuracy=accuracy)"}</pre>
      <p>
        TensorBoard&apos;s event files under <code>LOG_DIR</code> or <code>RESULT_DIR</code> are read too, and what the
        manifest&apos;s <code>evaluation_metrics</code> names.
      </p>
    </Empty>
  );
}
