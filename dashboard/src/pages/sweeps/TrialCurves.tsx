import { useQueries } from "@tanstack/react-query";

import type { Chart } from "../../charts/charts";
import { makeKey, toLine } from "../../charts/jobLines";
import { bucketsQuery } from "../../charts/queries";
import { value } from "../../ui/format";
import { TrialPlot } from "./TrialPlot";
import { bestFirst, type Sweep, type Trial } from "./trials";

const MOST = 10;

/** The curves of the sweep's metric over each other: of the best trials, and of those under way. */
export function TrialCurves({ sweep, trials }: { sweep: Sweep; trials: readonly Trial[] }) {
  const running = trials.filter((trial) => trial.state === "RUNNING" && trial.job);
  const best = bestFirst(trials, sweep.goal).filter((trial) => trial.value !== null && trial.job);
  const drawn = [...best.slice(0, MOST - Math.min(running.length, 4)), ...running].slice(0, MOST);
  const jobs = drawn.map((trial) => ({ id: trial.job ?? "", name: `trial ${trial.number}`, live: trial.state === "RUNNING" }));
  const asked = { names: [sweep.metric], kind: "user", x: "step" } as const;
  const answers = useQueries({ queries: jobs.map((job) => bucketsQuery(job.id, asked, job.live, true)) });
  const chart: Chart = { title: sweep.metric, names: [sweep.metric], format: value, binary: false, part: () => "" };
  // As the sweep does, only the first learner counts.
  const found = answers.flatMap((answer, at) =>
    (answer.data?.series ?? [])
      .filter((series) => series.learner === 1 && series.x.length > 0)
      .map((series) => ({ series, job: jobs[at]?.id ?? "" })),
  );
  const key = makeKey(jobs, found.map(({ series, job }) => ({ ...series, job })));
  const lines = found.map(({ series, job }) => ({
    ...toLine(series, job, chart, "step", 0, key),
    label: jobs.find((other) => other.id === job)?.name ?? job,
  }));
  return (
    <section className="card" aria-labelledby="curves">
      <h2 id="curves">
        Curves of {best.length + running.length > MOST ? `the best ${MOST} trials` : "the trials"}
      </h2>
      <TrialPlot
        lines={lines}
        axis="step"
        formatX={value}
        label={`Curves of ${sweep.metric}: ${lines.map((line) => `${line.label} ${value(line.last.at(-1))}`).join("; ")}`}
        none={answers.some((answer) => answer.isPending) ? "…" : "No trial has reported the metric."}
      />
    </section>
  );
}
