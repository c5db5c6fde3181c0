// The cells of a row of the jobs list: one line each.
import { Link } from "@tanstack/react-router";

import { ended, type Job } from "../../api/types";
import { ago, plural, since, size, value } from "../../ui/format";
import { headlineOf } from "../../ui/reason";
import { StateBadge } from "../../ui/StateBadge";
import { Time } from "../../ui/Time";
import { cutName, gpuHours, type JobsSearch } from "./search";

interface Props {
  job: Job;
  column: string;
  /** Those that the list is filtered by. */
  labels: readonly string[] | undefined;
  change: (changes: Partial<JobsSearch>) => void;
  now: number;
}

export function NameCell({ job }: { job: Job }) {
  const [head, tail] = cutName(job.name);
  return (
    <td className={job.pinned ? "name is-pinned" : "name"}>
      <Link to="/jobs/$jobId" params={{ jobId: job.id }} data-job={job.id} aria-label={job.name} title={`${job.name}\n${job.id}`}>
        <span className="cut">{head}</span>
        {tail && <span className="cut-end">{tail}</span>}
        {job.pinned && (
          <span className="pin" title="Pinned">
            ★<span className="visually-hidden"> pinned</span>
          </span>
        )}
      </Link>
    </td>
  );
}

/** The state, and beside it what its reason adds. */
export function StateCell({ job }: { job: Job }) {
  const words = job.condition ?? headlineOf(job.reason);
  // What all jobs in this state say is no news.
  const plain = !job.condition && (job.state === "COMPLETED" || (!ended(job) && job.state !== "QUEUED" && job.state !== "PENDING"));
  return (
    <td className="what">
      <span className="one-line">
        <StateBadge job={job} />
        {!plain && (
          <span className="muted reason" title={words}>
            {words}
          </span>
        )}
      </span>
    </td>
  );
}

export function Cell({ job, column, labels, change, now }: Props) {
  if (column.startsWith("metric:")) {
    const metric = job.metrics?.[column.slice(7)];
    const range = metric ? `from ${value(metric.min)} to ${value(metric.max)}` : undefined;
    return (
      <td className="right nowrap" data-label={column.slice(7)} title={range}>
        {metric ? value(metric.last) : "–"}
      </td>
    );
  }
  if (column.startsWith("param:")) {
    const text = job.params?.[column.slice(6)];
    return (
      <td className="nowrap param" data-label={column.slice(6)} title={text}>
        {text ?? "–"}
      </td>
    );
  }
  switch (column) {
    case "id":
      return (
        <td className="id mono muted nowrap" data-label="Id">
          {job.id}
        </td>
      );
    case "engine":
      return (
        <td data-label="Engine" className="nowrap">
          {job.engine}
        </td>
      );
    case "size":
      return (
        <td data-label="Size" className="nowrap">
          {sizeOf(job)}
        </td>
      );
    case "gpu_hours": {
      const hours = gpuHours(job, now);
      return (
        <td data-label="GPU-hours" className="right nowrap">
          {hours === null ? "–" : hours.toFixed(hours < 10 ? 2 : 0)}
        </td>
      );
    }
    case "labels":
      return <Labels job={job} labels={labels} change={change} />;
    case "user":
      return (
        <td data-label="User" className="user" title={job.user}>
          {job.user}
        </td>
      );
    case "created":
      return (
        <td data-label="Created" className="created">
          <Time at={job.created_at}>{ago(job.created_at)}</Time>
        </td>
      );
    case "duration":
      return (
        <td className="right nowrap duration">
          {job.started_at ? since(job.started_at, job.ended_at ?? now) : "–"}
        </td>
      );
    default:
      return <td />;
  }
}

const SHOWN = 2;

function Labels({ job, labels: chosen, change }: Pick<Props, "job" | "labels" | "change">) {
  const labels = Object.entries(job.labels).map(([key, text]) => `${key}=${text}`);
  const more = labels.slice(SHOWN);
  return (
    <td data-label={labels.length ? "Labels" : undefined} className="labels-cell">
      <span className="one-line">
        {labels.slice(0, SHOWN).map((label) => (
          <button
            key={label}
            type="button"
            className="chip"
            aria-label={label}
            title={`Only jobs with ${label}`}
            onClick={() => change({ label: [...new Set([...(chosen ?? []), label])] })}
          >
            <span className="cut">{label}</span>
          </button>
        ))}
        {more.length > 0 && (
          <span className="muted more" title={more.join("\n")}>
            +{more.length}
            <span className="visually-hidden">: {more.join(", ")}</span>
          </span>
        )}
      </span>
    </td>
  );
}

function sizeOf(job: Job): string {
  const { cpus, gpus, gpu_type: type, memory } = job.resources;
  const each = gpus ? `${gpus} ${type ?? "GPU"}` : plural(cpus, "CPU");
  return `${job.learners} × ${each}, ${size(memory)}`;
}
