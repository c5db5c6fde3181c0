import { useState } from "react";

import type { JobDetail } from "../../api/types";
import { Parallel } from "../../charts/Parallel";
import { Scatter } from "../../charts/Scatter";
import { spaceOf } from "./space";

/** Parallel coordinates and a scatter chart of what differs among the jobs. */
export function Space({ jobs }: { jobs: readonly JobDetail[] }) {
  const { parameters, metrics, names, points } = spaceOf(jobs);
  const [across, setAcross] = useState<string | null>(null);
  const [up, setUp] = useState<string | null>(null);
  const [firstMetric] = metrics;
  if (jobs.length < 2 || names.length < 2 || firstMetric === undefined) return null;
  const place = (name: string | null, otherwise: string) => Math.max(0, names.indexOf(names.includes(name ?? "") ? (name ?? "") : otherwise));
  const x = place(across, parameters[0] ?? names.find((name) => name !== firstMetric) ?? firstMetric);
  const y = place(up, firstMetric);
  const shown = [...parameters, firstMetric, ...metrics.slice(1, Math.max(1, 9 - parameters.length))];
  return (
    <div className="chart-pair">
      <section className="card" aria-labelledby="compare-parallel">
        <h2 id="compare-parallel">Parameters and values</h2>
        <Parallel
          names={shown}
          points={points.map((point) => ({ ...point, at: shown.map((name) => point.at[names.indexOf(name)]) }))}
          what="jobs"
        />
      </section>
      <section className="card" aria-labelledby="compare-scatter">
        <h2 id="compare-scatter">Scatter</h2>
        <div className="row">
          <Choice label="x" names={names} now={x} set={setAcross} />
          <Choice label="y" names={names} now={y} set={setUp} />
        </div>
        <Scatter names={names} points={points} x={x} y={y} what="jobs" />
      </section>
    </div>
  );
}

function Choice({ label, names, now, set }: { label: string; names: string[]; now: number; set: (name: string) => void }) {
  return (
    <label className="row">
      <span className="muted">{label}</span>
      <select className="input" value={names[now]} onChange={(event) => set(event.target.value)}>
        {names.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}
