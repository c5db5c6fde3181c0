import { Link } from "@tanstack/react-router";
import { type ReactElement, useState } from "react";

import { ended, type Job } from "../../api/types";
import { plural } from "../../ui/format";
import { useNow } from "../../ui/useNow";
import { type Group, groupsOf } from "./groups";
import { JobRow } from "./JobRow";
import { Rows } from "./Rows";
import { columnsOf, type JobsSearch, turnSort } from "./search";

interface Props {
  jobs: readonly Job[];
  /** Those that stand above all others. */
  pinned: readonly Job[];
  search: JobsSearch;
  change: (changes: Partial<JobsSearch>) => void;
  selected: ReadonlySet<string>;
  setSelected: (ids: ReadonlySet<string>) => void;
  toggle: (id: string) => void;
  /** What is shown is the answer to the question before. */
  stale: boolean;
}

/** The column's name, what it sorts by, and whether it holds numbers. */
const HEADS: Record<string, { name: string; sort?: string; right?: boolean }> = {
  id: { name: "Id" },
  engine: { name: "Engine" },
  size: { name: "Size" },
  gpu_hours: { name: "GPU-hours", right: true },
  labels: { name: "Labels" },
  user: { name: "User" },
  created: { name: "Created", sort: "created_at" },
  duration: { name: "Duration", sort: "duration", right: true },
};
export const columnName = (column: string) => HEADS[column]?.name ?? column.replace(/^(metric|param):/, "");

export function JobsTable({ jobs: others, pinned, search, change, selected, setSelected, toggle, stale }: Props) {
  const jobs = [...pinned, ...others];
  const now = useNow(jobs.some((job) => !ended(job)));
  const columns = columnsOf(search);
  const all = jobs.length > 0 && jobs.every((job) => selected.has(job.id));
  // What a row says of the past changes by the minute; only what goes on changes by the second.
  const minute = Math.floor(now / 60_000) * 60_000;
  const row = (job: Job) => (
    <JobRow
      key={job.id}
      job={job}
      columns={columns}
      labels={search.label}
      change={change}
      selected={selected.has(job.id)}
      toggle={toggle}
      now={ended(job) ? minute : now}
    />
  );
  const span = columns.length + 3;
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
            <SortHead sort="name" name="Job" search={search} change={change} />
            <SortHead sort="state" name="State" search={search} change={change} />
            {columns.map((column) => {
              const metric = column.startsWith("metric:");
              const { sort = metric ? column : undefined, right = metric } = HEADS[column] ?? {};
              return sort ? (
                <SortHead key={column} sort={sort} name={columnName(column)} right={right} search={search} change={change} />
              ) : (
                <th key={column} scope="col" className={right ? `right ${column}` : column}>
                  {columnName(column)}
                </th>
              );
            })}
          </tr>
        </thead>
        {pinned.length > 0 && <tbody className="pinned">{pinned.map(row)}</tbody>}
        {search.group === undefined ? (
          <Rows jobs={others} row={row} span={span} />
        ) : (
          groupsOf(others, search.group).map((group) => (
            <GroupRows
              key={group.value ?? ""}
              group={group}
              label={search.group ?? ""}
              span={span}
              only={(label) => change({ label: [...new Set([...(search.label ?? []), label])], group: undefined })}
              row={row}
            />
          ))
        )}
      </table>
    </div>
  );
}

interface GroupProps {
  group: Group;
  label: string;
  span: number;
  only: (label: string) => void;
  row: (job: Job) => ReactElement;
}

/** The rows of a group, below a row that folds them. */
function GroupRows({ group, label, span, only, row }: GroupProps) {
  const [open, setOpen] = useState(true);
  const failed = group.jobs.filter((job) => job.state === "FAILED").length;
  const name = group.value === null ? `without ${label}` : `${label}=${group.value}`;
  const head = (
    <tr className="group">
      <th scope="rowgroup" colSpan={span}>
        <button type="button" className="sort" aria-expanded={open} onClick={() => setOpen(!open)}>
          <span aria-hidden="true">{open ? "▾" : "▸"}</span> <span className="break">{name}</span>
        </button>{" "}
        <span className="muted">
          {plural(group.jobs.length, "job")}
          {failed > 0 && `, ${failed} failed`}
        </span>{" "}
        {label === "sweep" && group.value?.startsWith("swp-") ? (
          <Link to="/sweeps/$sweepId" params={{ sweepId: group.value }}>
            the sweep
          </Link>
        ) : (
          group.value !== null && (
            <button type="button" className="button quiet small" onClick={() => only(name)}>
              only these
            </button>
          )
        )}
      </th>
    </tr>
  );
  return <Rows jobs={open ? group.jobs : []} row={row} span={span} head={head} />;
}

function SortHead({
  sort,
  name,
  right = false,
  search,
  change,
}: {
  sort: string;
  name: string;
  right?: boolean | undefined;
  search: JobsSearch;
  change: (changes: Partial<JobsSearch>) => void;
}) {
  // The newest first is how the API lists without being told.
  const now = search.sort ?? "-created_at";
  const direction = now === sort ? "ascending" : now === `-${sort}` ? "descending" : "none";
  return (
    <th scope="col" aria-sort={direction} className={right ? "right" : undefined}>
      <button type="button" className="sort" onClick={() => change({ sort: turnSort(search.sort, sort) })}>
        {name}
        <span aria-hidden="true">{direction === "ascending" ? " ↑" : direction === "descending" ? " ↓" : ""}</span>
      </button>
    </th>
  );
}
