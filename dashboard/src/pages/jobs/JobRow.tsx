import { memo } from "react";

import type { Job } from "../../api/types";
import { Cell, NameCell, StateCell } from "./Cells";
import type { JobsSearch } from "./search";

interface Props {
  job: Job;
  columns: readonly string[];
  /** Those that the list is filtered by. */
  labels: readonly string[] | undefined;
  change: (changes: Partial<JobsSearch>) => void;
  selected: boolean;
  toggle: (id: string) => void;
  /** In ms since 1970. */
  now: number;
}

/** A row of the jobs list. It is drawn again only when something of it has changed: the list is live, and may be long. */
export const JobRow = memo(function JobRow({ job, columns, labels, change, selected, toggle, now }: Props) {
  return (
    <tr aria-selected={selected}>
      <td className="select">
        <input type="checkbox" aria-label={`Select ${job.name}`} checked={selected} onChange={() => toggle(job.id)} />
      </td>
      <NameCell job={job} />
      <StateCell job={job} />
      {columns.map((column) => (
        <Cell key={column} job={job} column={column} labels={labels} change={change} now={now} />
      ))}
    </tr>
  );
});
