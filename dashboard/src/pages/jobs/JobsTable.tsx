import { Link } from "@tanstack/react-router";

import { useState } from "react";

import { ended, type Job } from "../../api/types";
import { ago, plural, since, size, value } from "../../ui/format";
import { Middle } from "../../ui/Middle";
import { splitReason } from "../../ui/quoted";
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
  id: "Id",
  engine: "Engine",
  size: "Size",
  labels: "Labels",
  user: "User",
  created: "Created",
  duration: "Duration",
  "gpu-hours": "GPU-hours",
};
const RIGHT = new Set(["duration", "gpu-hours"]);
const LABELS = 2; // of a job that are shown at once

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
            <th scope="col">Why</th>
            {columns.map((column) =>
              column === "created" ? (
                <SortHead key={column} column="created_at" name="Created" search={search} change={change} />
              ) : column.startsWith("metric:") ? (
                <SortHead key={column} column={column} name={column.slice(7)} right search={search} change={change} />
              ) : (
                <th key={column} scope="col" className={RIGHT.has(column) ? "right" : undefined}>
                  {HEADS[column] ?? column.replace(/^param:/, "")}
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
                <Link to="/jobs/$jobId" params={{ jobId: job.id }} data-job={job.id} title={`${job.name} (${job.id})`}>
                  <Middle text={job.name} />
                </Link>
                <span className="visually-hidden">{job.id}</span>
              </td>
              <td className="nowrap">
                <StateBadge job={job} />
              </td>
              <td className="why muted" title={job.condition ?? job.reason}>
                {whyOf(job)}
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
        <span title={metric && `${value(metric.min)} … ${value(metric.max)}`}>{metric ? value(metric.last) : "–"}</span>
      </td>
    );
  }
  if (column.startsWith("param:")) {
    const name = column.slice(6);
    const given = Object.hasOwn(job.params ?? {}, name) ? job.params?.[name] : undefined;
    return (
      <td className="mono" data-label={name} title={given}>
        <span className="clip">{given ?? "–"}</span>
      </td>
    );
  }
  switch (column) {
    case "id":
      return (
        <td data-label="Id" className="mono nowrap">
          {job.id}
        </td>
      );
    case "engine":
      return <td data-label="Engine">{job.engine}</td>;
    case "size":
      return (
        <td data-label="Size" className="nowrap" title={`${size(job.resources.memory)} each`}>
          {sizeOf(job)}
        </td>
      );
    case "labels":
      return (
        <td data-label={Object.keys(job.labels).length ? "Labels" : undefined}>
          <Labels
            labels={job.labels}
            filter={(label) => change({ label: [...new Set([...(search.label ?? []), label])] })}
          />
        </td>
      );
    case "user":
      return (
        <td data-label="User" className="user" title={job.user}>
          {job.user}
        </td>
      );
    case "created":
      return (
        <td data-label="Created">
          <Time at={job.created_at}>{ago(job.created_at, now)}</Time>
        </td>
      );
    case "duration":
      return (
        <td data-label="Duration" className="right nowrap">
          {job.started_at ? since(job.started_at, job.ended_at ?? now) : "–"}
        </td>
      );
    case "gpu-hours": {
      const hours = job.started_at ? gpuHours(job, now) : 0;
      return (
        <td data-label="GPU-hours" className="right nowrap">
          {hours ? value(Number(hours.toPrecision(3))) : "–"}
        </td>
      );
    }
    default:
      return <td />;
  }
}

function sizeOf(job: Job): string {
  const { cpus, gpus, gpu_type: type } = job.resources;
  const each = gpus ? `${gpus} ${type ?? "GPU"}` : `${plural(cpus, "CPU")}`;
  return `${job.learners} × ${each}`;
}

/** Of its GPUs, from its first beginning to its end. */
function gpuHours(job: Job, now: number): number {
  const ms = new Date(job.ended_at ?? now).getTime() - new Date(job.started_at ?? now).getTime();
  return (job.learners * job.resources.gpus * ms) / 3_600_000;
}

/** Nothing where the state says it all. */
function whyOf(job: Job): string {
  const said = splitReason(job.condition ?? job.reason).headline;
  return said.toLowerCase() === job.state.toLowerCase() ? "" : said;
}

function Labels({ labels, filter }: { labels: Record<string, string>; filter: (label: string) => void }) {
  const [whole, setWhole] = useState(false);
  const all = Object.entries(labels).map(([key, text]) => `${key}=${text}`);
  const more = all.length - LABELS;
  return (
    <span className={whole ? "row labels" : "row labels keep"}>
      {(whole ? all : all.slice(0, LABELS)).map((label) => (
        <button key={label} type="button" className="chip" title={`Only jobs with ${label}`} onClick={() => filter(label)}>
          <span className="chip-text">{label}</span>
        </button>
      ))}
      {more > 0 && !whole && (
        <button
          type="button"
          className="chip"
          title={all.slice(LABELS).join("\n")}
          aria-label={`${plural(more, "more label")}`}
          onClick={() => setWhole(true)}
        >
          +{more}
        </button>
      )}
    </span>
  );
}
