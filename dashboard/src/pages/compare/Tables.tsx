// The tables of the compared jobs: a column for each job.
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import { ended, type JobDetail, type MetricSummary } from "../../api/types";
import { color } from "../../charts/lines";
import { dateTime, plural, since, size, value } from "../../ui/format";
import { StateBadge } from "../../ui/StateBadge";
import { Time } from "../../ui/Time";
import { useNow } from "../../ui/useNow";
import { byTopic, differences, differs, parameters } from "./differences";
import { changedWords } from "./words";

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

export function Facts({ jobs, all, drop }: { jobs: readonly JobDetail[]; all: boolean; drop: (id: string) => void }) {
  const now = useNow(jobs.some((job) => !ended(job)));
  const [first] = jobs;
  const rows: { name: string; of: (job: JobDetail) => string; show?: (job: JobDetail) => ReactNode; always?: true }[] = [
    { name: "State", of: (job) => job.state, show: (job) => <StateBadge job={job} />, always: true },
    { name: "Ran for", of: (job) => (job.started_at ? since(job.started_at, job.ended_at ?? now) : "–"), always: true },
    { name: "Waited for", of: (job) => since(job.created_at, job.started_at ?? job.ended_at ?? now) },
    {
      name: "Created",
      of: (job) => job.created_at,
      show: (job) => <Time at={job.created_at}>{dateTime(job.created_at)}</Time>,
    },
    { name: "Attempts", of: (job) => String(job.attempt) },
    { name: "Learners", of: (job) => String(job.learners) },
    {
      name: "Each has",
      of: ({ resources }) =>
        `${plural(resources.cpus, "CPU")}, ${size(resources.memory)}` +
        (resources.gpus ? `, ${plural(resources.gpus, resources.gpu_type ?? "GPU")}` : ""),
    },
    { name: "Engine", of: (job) => job.engine },
    {
      name: "Code",
      of: (job) => job.code_sha256 ?? "none",
      show: (job) => <CodeCell job={job} first={first} />,
    },
    { name: "User", of: (job) => job.user },
  ];
  const shown = rows.filter(({ of, always }) => all || always || differs(jobs.map(of)));
  return (
    <section className="card flush" aria-label="The jobs">
      <div className="table-wrap">
        <table className="table compare">
          <Heads jobs={jobs} drop={drop} />
          <tbody>
            {shown.map(({ name, of, show = of }) => (
              <Row key={name} name={name} cells={jobs.map(show)} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function CodeCell({ job, first }: { job: JobDetail; first: JobDetail | undefined }) {
  if (!job.code_sha256) return <span className="muted">none</span>;
  return (
    <>
      <code title={job.code_sha256}>{job.code_sha256.slice(0, 12)}</code>
      {first && first.code_sha256 && first.code_sha256 !== job.code_sha256 && (
        <>
          {" "}
          <Link to="/jobs/$jobId/code" params={{ jobId: job.id }} search={{ against: first.id }}>
            changes
          </Link>
        </>
      )}
    </>
  );
}

/** A value, in which the words that the first job does not have are marked. */
function Words({ first, text }: { first: string | undefined; text: string | undefined }) {
  if (text === undefined) return <span className="muted">not set</span>;
  return changedWords(first, text).map((part, at) =>
    part.changed ? (
      <mark key={at} className="changed">
        {part.text}
      </mark>
    ) : (
      part.text
    ),
  );
}

const words = (values: readonly (string | undefined)[]) =>
  values.map((text, at) => <Words key={at} first={at ? values[0] : undefined} text={text} />);

export function Differences({ jobs }: { jobs: readonly JobDetail[] }) {
  const groups = byTopic(differences(jobs.map((job) => job.manifest)));
  if (jobs.length < 2) return null;
  return (
    <section className="card flush" aria-labelledby="differences">
      <h2 id="differences" className="card-title">
        What differs in the manifests
      </h2>
      {groups.length === 0 ? (
        <p className="card-foot muted">Nothing: all of them say the same.</p>
      ) : (
        <div className="table-wrap">
          <table className="table compare">
            <Heads jobs={jobs} />
            {groups.map(({ topic, rows }) => (
              <tbody key={topic}>
                {groups.length > 1 && (
                  <tr className="compare-topic">
                    <th scope="rowgroup" colSpan={jobs.length + 1}>
                      {topic}
                    </th>
                  </tr>
                )}
                {rows.map(([path, values]) => (
                  <Row key={path} mono name={path} cells={words(values)} />
                ))}
              </tbody>
            ))}
          </table>
        </div>
      )}
    </section>
  );
}

export function Parameters({ jobs, all }: { jobs: readonly JobDetail[]; all: boolean }) {
  const rows = parameters(jobs).filter(([, values]) => all || differs(values));
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
              <Row key={name} mono name={name} cells={words(values)} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

export function Values({ jobs, all }: { jobs: readonly JobDetail[]; all: boolean }) {
  const metrics = jobs.map((job): Record<string, MetricSummary> => job.metrics ?? {});
  const same = (name: string) => !differs(metrics.map((summaries) => JSON.stringify(Object.hasOwn(summaries, name) ? summaries[name] : null)));
  const names = [...new Set(metrics.flatMap((summaries) => Object.keys(summaries)))].filter((name) => all || !same(name)).sort();
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
