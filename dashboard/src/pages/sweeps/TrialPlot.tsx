import { Plot } from "../../charts/Plot";
import type { Line } from "../../charts/lines";
import { value } from "../../ui/format";

interface Props {
  lines: readonly Line[];
  axis: "step" | "elapsed";
  formatX: (x: number) => string;
  /** The chart in words. */
  label: string;
  /** In place of a chart without lines. */
  none: string;
}

/** A small chart of a sweep's metric, without controls. */
export function TrialPlot({ lines, axis, formatX, label, none }: Props) {
  if (!lines.length) return <p className="plot-none muted">{none}</p>;
  return (
    <div className="curve">
      <Plot
        lines={lines}
        axis={axis}
        log={false}
        smooth={0}
        range={null}
        height={190}
        format={value}
        binary={false}
        formatX={formatX}
        onZoom={() => {}}
        label={label}
      />
    </div>
  );
}
