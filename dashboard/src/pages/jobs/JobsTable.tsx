import { Link } from "@tanstack/react-router";

import { ended, type Job } from "../../api/types";
import { ago, plural, since, size, value } from "../../ui/format";
import { StateBadge } from "../../ui/StateBadge";
import { Time } from "../../ui/Time";
import { useNow } from "../../ui/useNow";
import { columnsOf, type JobsSearch, turnSort } from "./search";

interface Props {
  jobs: readonly Job[];
  search: JobsSearch;
  change: (changes: Partial<JobsSearch>) => void;
  selected: ReadonlySet<string>;
  setSelected: (ids: ReadonlySet<string>) => void;
  toggle: (id: string) => void;
  /** What is shown is the answer to the question before. */
  stale: boolean;
}

const HEADS: Record<string, string> = {
  engine: "Engine",
  size: "Size",
  labels: "Labels",
  user: "User",
  created: "Created",
  duration: "Duration",
};

export function JobsTable({ jobs, search, change, selected, setSelected, toggle, stale }: Props) {
  const now = useNow(jobs.some((job) => !ended(job)));
  const columns = columnsOf(search);
  const all = jobs.length > 0 && jobs.every((job) => selected.has(job.id));
  const sortable = (column: string, name: string, right = false) => (
    <SortHead column={column} name={name} right={right} search={search} change={change} />
  );
  return (
    <div className="card flush table-wrap">
      <table className="table jobs" aria-busy={stale}>
        <thead>
          <tr>
            <th className="select">
              <input
                type="checkbox"
                aria-label="Select all that are shown"
                checked={all}
                onChange={() => setSelected(all ? new Set() : new Set(jobs.map((job) => job.id)))}
              />
            </th>
            {sortable("name", "Job")}
            {sortable("state", "State")}
            {columns.map((column) =>
              column === "created" ? (
                <SortHead key={column} column="created_at" name="Created" search={search} change={change} />
              ) : column.startsWith("metric:") ? (
                <SortHead key={column} column={column} name={column.slice(7)} right search={search} change={change} />
              ) : (
                <th key={column} scope="col" className={column === "duration" ? "right" : undefined}>
                  {HEADS[column] ?? column}
                </th>
              ),
            )}
          </tr>
        </thead>
        <tbody>
          {jobs.map((job) => (
            <tr key={job.id} aria-selected={selected.has(job.id)}>
              <td className="select">
                <input
                  type="checkbox"
                  aria-label={`Select ${job.name}`}
                  checked={selected.has(job.id)}
                  onChange={() => toggle(job.id)}
                />
              </td>
              <td className="name">
                <Link to="/jobs/$jobId" params={{ jobId: job.id }} data-job={job.id} className="break">
                  {job.name}
                </Link>
                <div className="muted mono">{job.id}</div>
              </td>
              <td className="what">
                <StateBadge job={job} />
                <div className="muted reason break" title={job.reason}>
                  {job.condition ?? job.reason}
                </div>
              </td>
              {columns.map((column) => (
                <Cell key={column} job={job} column={column} search={search} change={change} now={now} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function SortHead({
  column,
  name,
  right = false,
  search,
  change,
}: {
  column: string;
  name: string;
  right?: boolean;
  search: JobsSearch;
  change: (changes: Partial<JobsSearch>) => void;
}) {
  // The newest first is how the API lists without being told.
  const sort = search.sort ?? "-created_at";
  const direction = sort === column ? "ascending" : sort === `-${column}` ? "descending" : "none";
  return (
    <th scope="col" aria-sort={direction} className={right ? "right" : undefined}>
      <button type="button" className="sort" onClick={() => change({ sort: turnSort(search.sort, column) })}>
        {name}
        <span aria-hidden="true">{direction === "ascending" ? " ↑" : direction === "descending" ? " ↓" : ""}</span>
      </button>
    </th>
  );
}

function Cell({
  job,
  column,
  search,
  change,
  now,
}: {
  job: Job;
  column: string;
  search: JobsSearch;
  change: (changes: Partial<JobsSearch>) => void;
  now: number;
}) {
  if (column.startsWith("metric:")) {
    const metric = job.metrics?.[column.slice(7)];
    return (
      <td className="right nowrap numbers" data-label={column.slice(7)}>
        {metric ? value(metric.last) : "–"}
        {metric && (
          <div className="muted">
            {value(metric.min)} … {value(metric.max)}
          </div>
        )}
      </td>
    );
  }
  switch (column) {
    case "engine":
      return <td data-label="Engine">{job.engine}</td>;
    case "size":
      return (
        <td data-label="Size" className="nowrap">
          {sizeOf(job)}
        </td>
      );
    case "labels":
      return (
        <td data-label={Object.keys(job.labels).length ? "Labels" : undefined}>
          <span className="row labels">
            {Object.entries(job.labels).map(([key, text]) => {
              const label = `${key}=${text}`;
              return (
                <button
                  key={key}
                  type="button"
                  className="chip"
                  title={`Only jobs with ${label}`}
                  onClick={() => change({ label: [...new Set([...(search.label ?? []), label])] })}
                >
                  {label}
                </button>
              );
            })}
          </span>
        </td>
      );
    case "user":
      return (
        <td data-label="User" className="user">
          {job.user}
        </td>
      );
    case "created":
      return (
        <td data-label="Created">
          <Time at={job.created_at}>{ago(job.created_at)}</Time>
        </td>
      );
    case "duration":
      return (
        <td data-label="Duration" className="right nowrap">
          {job.started_at ? since(job.started_at, job.ended_at ?? now) : "–"}
        </td>
      );
    default:
      return <td />;
  }
}

function sizeOf(job: Job): string {
  const { cpus, gpus, gpu_type: type, memory } = job.resources;
  const each = gpus ? `${gpus} ${type ?? "GPU"}` : `${plural(cpus, "CPU")}`;
  return `${job.learners} × ${each}, ${size(memory)}`;
}
