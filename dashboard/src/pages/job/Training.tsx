// How the training goes: the metrics that tell most, with their newest and best values and their curves.
import "../../styles/charts.css";

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { ended, type JobDetail, type MetricSummary } from "../../api/types";
import { Curves } from "../../charts/Curves";
import { best, byWorth, goal } from "../../charts/main";
import { seriesQuery } from "../../charts/queries";
import { value } from "../../ui/format";

const TILES = 4;
const CURVES = 2;

export function Training({ job }: { job: JobDetail }) {
  const metrics: Record<string, MetricSummary> = job.metrics ?? {};
  const names = byWorth(Object.keys(metrics));
  const { data } = useQuery({ ...seriesQuery(job.id, "user", !ended(job)), enabled: names.length > 0 });
  if (!names.length) return null;
  return (
    <section className="card" aria-labelledby="training">
      <div className="row spread">
        <h2 id="training">Training</h2>
        <Link to="/jobs/$jobId/metrics" params={{ jobId: job.id }}>
          {names.length === 1 ? "Metrics" : `All ${names.length} metrics`}
        </Link>
      </div>
      <dl className="tiles">
        {names.slice(0, TILES).map((name) => (
          <Tile key={name} name={name} metric={metrics[name]} />
        ))}
      </dl>
      <Curves job={job} series={data?.series} count={CURVES} />
    </section>
  );
}

function Tile({ name, metric }: { name: string; metric: MetricSummary | undefined }) {
  const found = metric && best(name, metric);
  return (
    <div className="tile">
      <dt title={name}>{name}</dt>
      <dd className="numbers">
        {value(metric?.last)}
        {found !== null && found !== undefined && (
          <span className="muted">
            {goal(name)} {value(found)}
          </span>
        )}
      </dd>
    </div>
  );
}
