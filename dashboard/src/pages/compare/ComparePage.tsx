// Up to ten jobs beside each other: what they are, what differs in their manifests, how their metrics went.
import "../../styles/charts.css";

import { useQueries } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";

import { jobQuery } from "../../api/queries";
import { ended, type JobDetail, type MetricSummary } from "../../api/types";
import { chartedJob } from "../../charts/jobs";
import { color } from "../../charts/lines";
import { Panel } from "../../charts/Panel";
import { MOST_JOBS } from "../../charts/search";
import { Empty } from "../../ui/Empty";
import { dateTime, plural, since, size, value } from "../../ui/format";
import { Loading } from "../../ui/Loading";
import { StateBadge } from "../../ui/StateBadge";
import { Time } from "../../ui/Time";
import { useNow } from "../../ui/useNow";
import { useTitle } from "../../ui/useTitle";
import { AnotherJob } from "../jobs/AnotherJob";
import { differences, parameters } from "./differences";
import type { CompareSearch } from "./search";

const route = getRouteApi("/inside/compare");

export function ComparePage() {
  useTitle("Compare");
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const [adding, setAdding] = useState(false);
  const ids = search.job ?? [];
  const found = useQueries({ queries: ids.map((id) => jobQuery(id)) });
  const jobs = found.flatMap((query) => query.data ?? []);
  const missing = ids.filter((_, at) => found[at]?.error && !found[at]?.data);
  const change = (changes: Partial<CompareSearch>) =>
    void navigate({ search: (before) => ({ ...before, ...changes }), replace: true, resetScroll: false });
  return (
    <>
      <div className="page-head">
        <h1>Compare</h1>
        <div className="actions">
          {ids.length < MOST_JOBS && (
            <button type="button" className="button" onClick={() => setAdding(true)}>
              Add a job …
            </button>
          )}
        </div>
      </div>
      {missing.length > 0 && (
        <div className="note warn" role="status">
          <p>Not found in this project: {missing.join(", ")}</p>
        </div>
      )}
      {ids.length === 0 ? (
        <div className="card">
          <Empty title="No jobs chosen">
            <p>Select up to {MOST_JOBS} jobs in the list, then “Compare”.</p>
            <Link to="/" className="button">
              To the jobs
            </Link>
          </Empty>
        </div>
      ) : jobs.length === 0 ? (
        missing.length < ids.length && <Loading rows={6} />
      ) : (
        <div className="stack">
          <Facts jobs={jobs} drop={(id) => change({ job: ids.filter((other) => other !== id) })} />
          <Differences jobs={jobs} />
          <Parameters jobs={jobs} />
          <Values jobs={jobs} />
          <h2>Charts</h2>
          <Panel
            jobs={jobs.map(chartedJob)}
            kind="user"
            search={search}
            change={change}
            empty={<p className="muted">None of these jobs has reported a metric.</p>}
          />
        </div>
      )}
      {adding && <AnotherJob not={ids} choose={(id) => change({ job: [...ids, id] })} onClose={() => setAdding(false)} />}
    </>
  );
}

function Heads({ jobs, drop }: { jobs: readonly JobDetail[]; drop?: (id: string) => void }) {
  return (
    <thead>
      <tr>
        <th scope="col">
          <span className="visually-hidden">What</span>
        </th>
        {jobs.map((job, at) => (
          <th key={job.id} scope="col">
            <span className="compare-head">
              <i className="swatch" style={{ color: color(at) }} />
              <Link to="/jobs/$jobId" params={{ jobId: job.id }} title={job.id} className="break">
                {job.name}
              </Link>
              {drop && (
                <button
                  type="button"
                  className="button quiet small"
                  aria-label={`Without ${job.name} (${job.id})`}
                  onClick={() => drop(job.id)}
                >
                  ×
                </button>
              )}
            </span>
          </th>
        ))}
      </tr>
    </thead>
  );
}

function Row({ name, cells, mono = false }: { name: string; cells: readonly ReactNode[]; mono?: boolean }) {
  return (
    <tr>
      <th scope="row" className={mono ? "mono break" : ""}>
        {name}
      </th>
      {cells.map((cell, at) => (
        <td key={at} className={mono ? "mono break" : "break"}>
          {cell}
        </td>
      ))}
    </tr>
  );
}

function Facts({ jobs, drop }: { jobs: readonly JobDetail[]; drop: (id: string) => void }) {
  const now = useNow(jobs.some((job) => !ended(job)));
  const of = (show: (job: JobDetail) => ReactNode) => jobs.map(show);
  return (
    <section className="card flush" aria-label="The jobs">
      <div className="table-wrap">
        <table className="table compare">
          <Heads jobs={jobs} drop={drop} />
          <tbody>
            <Row name="State" cells={of((job) => <StateBadge job={job} />)} />
            <Row name="Ran for" cells={of((job) => (job.started_at ? since(job.started_at, job.ended_at ?? now) : "–"))} />
            <Row name="Waited for" cells={of((job) => since(job.created_at, job.started_at ?? job.ended_at ?? now))} />
            <Row name="Created" cells={of((job) => <Time at={job.created_at}>{dateTime(job.created_at)}</Time>)} />
            <Row name="Attempts" cells={of((job) => job.attempt)} />
            <Row name="Learners" cells={of((job) => job.learners)} />
            <Row
              name="Each has"
              cells={of(
                ({ resources }) =>
                  `${plural(resources.cpus, "CPU")}, ${size(resources.memory)}` +
                  (resources.gpus ? `, ${plural(resources.gpus, resources.gpu_type ?? "GPU")}` : ""),
              )}
            />
            <Row name="Engine" cells={of((job) => job.engine)} />
            <Row
              name="Code"
              cells={of((job) =>
                job.code_sha256 ? (
                  <code title={job.code_sha256}>{job.code_sha256.slice(0, 12)}</code>
                ) : (
                  <span className="muted">none</span>
                ),
              )}
            />
            <Row name="User" cells={of((job) => job.user)} />
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Differences({ jobs }: { jobs: readonly JobDetail[] }) {
  const rows = differences(jobs.map((job) => job.manifest));
  if (jobs.length < 2) return null;
  return (
    <section className="card flush" aria-labelledby="differences">
      <h2 id="differences" className="card-title">
        What differs in the manifests
      </h2>
      {rows.length === 0 ? (
        <p className="card-foot muted">Nothing: all of them say the same.</p>
      ) : (
        <div className="table-wrap">
          <table className="table compare">
            <Heads jobs={jobs} />
            <tbody>
              {rows.map(([path, values]) => (
                <Row
                  key={path}
                  mono
                  name={path}
                  cells={values.map((text) => text ?? <span className="muted">not set</span>)}
                />
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function Parameters({ jobs }: { jobs: readonly JobDetail[] }) {
  const rows = parameters(jobs);
  if (!rows.length) return null;
  return (
    <section className="card flush" aria-labelledby="parameters">
      <h2 id="parameters" className="card-title">
        Parameters
      </h2>
      <div className="table-wrap">
        <table className="table compare">
          <Heads jobs={jobs} />
          <tbody>
            {rows.map(([name, values]) => (
              <Row key={name} mono name={name} cells={values.map((text) => text ?? <span className="muted">–</span>)} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Values({ jobs }: { jobs: readonly JobDetail[] }) {
  const metrics = jobs.map((job): Record<string, MetricSummary> => job.metrics ?? {});
  const names = [...new Set(metrics.flatMap((summaries) => Object.keys(summaries)))].sort();
  if (!names.length) return null;
  return (
    <section className="card flush" aria-labelledby="values">
      <h2 id="values" className="card-title">
        Metrics: last, smallest and largest value
      </h2>
      <div className="table-wrap">
        <table className="table compare">
          <Heads jobs={jobs} />
          <tbody>
            {names.map((name) => (
              <Row
                key={name}
                mono
                name={name}
                cells={metrics.map((summaries) => {
                  const found = Object.hasOwn(summaries, name) ? summaries[name] : undefined;
                  if (!found) return <span className="muted">–</span>;
                  return (
                    <span className="numbers">
                      <strong>{value(found.last)}</strong>{" "}
                      <span className="muted nowrap">
                        {value(found.min)} … {value(found.max)}
                      </span>
                    </span>
                  );
                })}
              />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
