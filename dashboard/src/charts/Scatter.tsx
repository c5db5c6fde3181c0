// A point for each job or trial, by two of its values.
import { type Point, scaleOf, short } from "./points";

const WIDTH = 320;
const HEIGHT = 200;
const EDGE = { top: 12, bottom: 32, left: 62, right: 16 };

interface Props {
  names: readonly string[];
  points: readonly Point[];
  /** The places of the two names. */
  x: number;
  y: number;
  what: string;
}

export function Scatter({ names, points, x, y, what }: Props) {
  const across = scaleOf(points.map((point) => point.at[x]));
  const up = scaleOf(points.map((point) => point.at[y]));
  const left = (share: number) => EDGE.left + share * (WIDTH - EDGE.left - EDGE.right);
  const top = (share: number) => HEIGHT - EDGE.bottom - share * (HEIGHT - EDGE.top - EDGE.bottom);
  const drawn = points.flatMap((point) => {
    const [cx, cy] = [across.place(point.at[x]), up.place(point.at[y])];
    return cx === null || cy === null ? [] : [{ point, cx: left(cx), cy: top(cy) }];
  });
  const [nameX = "", nameY = ""] = [names[x], names[y]];
  return (
    <svg
      className="scatter"
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      role="img"
      aria-label={`${nameY} by ${nameX} of ${drawn.length} ${what}; the tables of this page have the numbers`}
    >
      <g className="parallel-axis">
        <line x1={EDGE.left} x2={EDGE.left} y1={top(0)} y2={top(1)} />
        <line x1={left(0)} x2={left(1)} y1={top(0)} y2={top(0)} />
        <text x={left(0)} y={HEIGHT - 18} textAnchor="start">
          {short(across.ends[0])}
        </text>
        <text x={left(1)} y={HEIGHT - 18} textAnchor="end">
          {short(across.ends[1])}
        </text>
        <text x={(left(0) + left(1)) / 2} y={HEIGHT - 4} textAnchor="middle" className="name">
          {nameX}
        </text>
        <text x={EDGE.left - 5} y={top(0)} textAnchor="end">
          {short(up.ends[0])}
        </text>
        <text x={EDGE.left - 5} y={top(1) + 8} textAnchor="end">
          {short(up.ends[1])}
        </text>
      </g>
      {/* The best are drawn last, over the others. */}
      {drawn.reverse().map(({ point, cx, cy }) => (
        <circle
          key={point.key}
          cx={cx}
          cy={cy}
          r={point.best ? 5 : 3.5}
          className={point.best ? "best" : undefined}
          style={{ opacity: point.color || point.best ? 1 : 0.3 + 0.5 * point.good, ...(point.color && { fill: point.color }) }}
        >
          <title>{point.label}</title>
        </circle>
      ))}
    </svg>
  );
}
