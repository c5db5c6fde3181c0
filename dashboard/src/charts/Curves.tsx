// The curves of a job that tell most, without anything to choose.
import { useMemo } from "react";

import type { JobDetail } from "../api/types";
import { chartedJob } from "./jobs";
import { chartsOf } from "./charts";
import { makeKey } from "./jobLines";
import type { Series } from "./lines";
import { byWorth } from "./main";
import { ChartCard } from "./Panel";

const ALL = () => true;
const NOTHING = () => {};

export function Curves({ job, series, count }: { job: JobDetail; series: readonly Series[] | undefined; count: number }) {
  const known = useMemo(() => (series ?? []).map((found) => ({ ...found, job: job.id })), [series, job.id]);
  const jobs = [chartedJob(job)];
  const charts = chartsOf("user", known);
  const order = byWorth(charts.flatMap((chart) => chart.names));
  const place = (names: readonly string[]) => Math.min(...names.map((name) => order.indexOf(name)));
  const chosen = charts.sort((a, b) => place(a.names) - place(b.names)).slice(0, count);
  return (
    <div className="charts curves">
      {chosen.map((chart) => (
        <ChartCard
          key={chart.title}
          chart={chart}
          jobs={jobs}
          kind="user"
          axis="step"
          search={{}}
          change={NOTHING}
          fits={ALL}
          lineKey={makeKey(jobs, known)}
          known={known}
        />
      ))}
    </div>
  );
}
