// Parallel coordinates: an axis for each parameter and one for the value, and a line for each trial across them.
import { value } from "../../ui/format";
import { axisOf, bestFirst, parametersOf, type Sweep, type Trial } from "./trials";

const WIDTH = 600;
const HEIGHT = 220;
const EDGE = { top: 30, bottom: 22, side: 46 };
const MOST = 300; // lines

export function Parallel({ sweep, trials }: { sweep: Sweep; trials: readonly Trial[] }) {
  const valued = bestFirst(trials, sweep.goal).filter((trial) => trial.value !== null);
  const names = parametersOf(valued);
  if (valued.length < 2 || !names.length) return null;
  const values = valued.map((trial) => trial.value as number);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const place = (trial: Trial) => (high > low ? ((trial.value as number) - low) / (high - low) : 0.5);
  const axes = [
    ...names.map((name) => ({ name, ...axisOf(valued, name) })),
    { name: sweep.metric, place, ends: [value(low), value(high)] as [string, string] },
  ];
  const x = (at: number) => EDGE.side + (at * (WIDTH - 2 * EDGE.side)) / (axes.length - 1);
  const y = (share: number) => HEIGHT - EDGE.bottom - share * (HEIGHT - EDGE.top - EDGE.bottom);
  // The best are drawn last, over the others.
  const drawn = valued.slice(0, MOST).reverse();
  return (
    <section className="card" aria-labelledby="parallel">
      <h2 id="parallel">Parameters and value</h2>
      <svg className="parallel" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`Parameters of ${drawn.length} trials and their values; the table below has the numbers`}>
        {drawn.map((trial) => {
          const good = sweep.goal === "max" ? place(trial) : 1 - place(trial);
          const points = axes.flatMap((axis, at) => {
            const share = axis.place(trial);
            return share === null ? [] : [`${x(at)},${y(share)}`];
          });
          return (
            <polyline
              key={trial.number}
              points={points.join(" ")}
              className={trial.number === sweep.best?.number ? "best" : undefined}
              style={{ opacity: trial.number === sweep.best?.number ? 1 : 0.12 + 0.55 * good ** 2 }}
            >
              <title>{`trial ${trial.number}: ${value(trial.value)}`}</title>
            </polyline>
          );
        })}
        {axes.map((axis, at) => (
          <g key={axis.name} className="parallel-axis" textAnchor="middle">
            <line x1={x(at)} x2={x(at)} y1={y(0)} y2={y(1)} />
            <text x={x(at)} y={11} className="name">
              {axis.name}
            </text>
            <text x={x(at)} y={y(1) - 5}>
              {axis.ends[1]}
            </text>
            <text x={x(at)} y={HEIGHT - 6}>
              {axis.ends[0]}
            </text>
          </g>
        ))}
      </svg>
    </section>
  );
}
