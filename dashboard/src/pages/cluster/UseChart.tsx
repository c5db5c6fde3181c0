import "../../styles/charts.css";

import { Plot } from "../../charts/Plot";
import { value } from "../../ui/format";
import { type EngineUse, useLinesOf } from "./useLines";

/** The GPUs and the CPUs that jobs held. */
export function UseChart({ engines }: { engines: readonly EngineUse[] }) {
  const charts = [
    { title: "GPUs held", lines: useLinesOf(engines, "gpus") },
    { title: "CPUs held", lines: useLinesOf(engines, "cpus") },
  ].filter((chart) => chart.lines.length);
  return (
    <div className="use-charts">
      {charts.map(({ title, lines }) => (
        <figure key={title} className="curve">
          <figcaption>{title}</figcaption>
          <Plot
            lines={lines}
            axis="time"
            log={false}
            smooth={0}
            range={null}
            height={150}
            format={value}
            binary={false}
            zero
            formatX={value}
            onZoom={() => {}}
            label={`Chart of ${title}: ${lines.map((line) => `${line.label} ${value(line.last.at(-1))}`).join("; ")}`}
          />
        </figure>
      ))}
    </div>
  );
}
