import "../../styles/charts.css";

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { ended, type JobDetail } from "../../api/types";
import { makeKey, toLine } from "../../charts/jobLines";
import { chartedJob } from "../../charts/jobs";
import { Plot } from "../../charts/Plot";
import { bucketsQuery } from "../../charts/queries";
import { ErrorNote } from "../../ui/ErrorNote";
import { plural, value } from "../../ui/format";
import { type MainChart, mainCharts } from "./mainMetrics";

/** The curves that matter most, with the best value of each. */
export function MainCurves({ job }: { job: JobDetail }) {
  const charts = mainCharts(job);
  const count = Object.keys(job.metrics ?? {}).length;
  return (
    <section className="card" aria-labelledby="curves">
      <div className="card-head">
        <h2 id="curves">Metrics</h2>
        <Link to="/jobs/$jobId/metrics" params={{ jobId: job.id }}>
          {count > charts.flatMap((chart) => chart.names).length ? `All ${plural(count, "metric")}` : "Larger"}
        </Link>
      </div>
      <div className="main-curves">
        {charts.map((chart) => (
          <Curve key={chart.title} job={job} chart={chart} />
        ))}
      </div>
    </section>
  );
}

function Curve({ job, chart }: { job: JobDetail; chart: MainChart }) {
  const charted = chartedJob(job);
  const { data, error } = useQuery(bucketsQuery(job.id, { names: chart.names, kind: "user", x: "step" }, !ended(job), true));
  const series = (data?.series ?? []).filter((found) => found.x.length > 0);
  const key = makeKey([charted], series.map((found) => ({ ...found, job: job.id })));
  const lines = series.map((found) => toLine(found, job.id, chart, "step", 0, key));
  const several = new Set(series.map((found) => `${found.learner} ${found.attempt}`)).size > 1;
  const named = lines.map((line, at) => {
    const part = chart.part(series[at]?.name ?? "");
    return several || !part ? line : { ...line, label: part };
  });
  return (
    <figure className="curve">
      <figcaption>
        <span className="break">{chart.title}</span>
        {chart.best && (
          <span className="muted" title={`${chart.goal === "min" ? "The smallest" : "The largest"} value of ${chart.best.name}`}>
            best <strong className="numbers">{value(chart.best.value)}</strong>
          </span>
        )}
      </figcaption>
      <ErrorNote error={data ? null : error} />
      {named.length > 0 ? (
        <Plot
          lines={named}
          axis="step"
          log={false}
          smooth={0}
          range={null}
          height={150}
          format={value}
          binary={false}
          formatX={value}
          onZoom={() => {}}
          label={`Chart of ${chart.title}: ${named.map((line) => `${line.label} ${value(line.last.at(-1))}`).join("; ")}`}
        />
      ) : (
        <div className="curve-none" />
      )}
    </figure>
  );
}
