// What the learners use of what was asked for: of a running job now, of one that has ended at most.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { ended, type JobDetail } from "../../api/types";
import { seriesQuery } from "../../charts/queries";
import { Bar } from "../../ui/Bar";
import { size, value } from "../../ui/format";
import { usageOf } from "./usageOf";

export function Usage({ job }: { job: JobDetail }) {
  const over = ended(job);
  const { data } = useQuery({ ...seriesQuery(job.id, "system", !over), enabled: job.attempt > 0 && !job.removed?.metrics });
  const usage = usageOf(data?.series ?? [], job.attempt, over ? "max" : "last");
  if (!usage) return null;
  const { resources } = job;
  const rows: [string, number, string][] = [];
  if (usage.cpus !== null) rows.push(["CPU", usage.cpus / resources.cpus, `${value(Math.round(usage.cpus * 10) / 10)} of ${resources.cpus}`]);
  if (usage.memory !== null) rows.push(["Memory", usage.memory / resources.memory, `${size(usage.memory)} of ${size(resources.memory)}`]);
  if (usage.gpus !== null) rows.push([resources.gpus > 1 ? "GPUs" : "GPU", usage.gpus, `${Math.round(100 * usage.gpus)} % busy`]);
  return (
    <section className="card" aria-labelledby="usage">
      <div className="row spread">
        <h2 id="usage">Use of what was asked for</h2>
        <Link to="/jobs/$jobId/system" params={{ jobId: job.id }}>
          System
        </Link>
      </div>
      <dl className="usage">
        {rows.map(([name, share, text]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              <Bar share={share} label={name} />
              <span className="numbers">{text}</span>
            </dd>
          </div>
        ))}
      </dl>
      <p className="muted small">
        {over ? "At most" : "Now"}
        {usage.learners > 1 ? `, in the mean of ${usage.learners} learners` : ""}.
      </p>
    </section>
  );
}
