// Parallel coordinates: an axis for each name, and a line for each point across them.
import { type Point, scaleOf, short } from "./points";

const WIDTH = 600;
const HEIGHT = 220;
const EDGE = { top: 30, bottom: 22, side: 46 };
const MOST = 300; // lines

interface Props {
  names: readonly string[];
  /** The best first. */
  points: readonly Point[];
  /** What of a point's label: "trials", "jobs". */
  what: string;
}

export function Parallel({ names, points, what }: Props) {
  const axes = names.map((name, at) => ({ name, ...scaleOf(points.map((point) => point.at[at])) }));
  const x = (at: number) => EDGE.side + (at * (WIDTH - 2 * EDGE.side)) / Math.max(1, axes.length - 1);
  const y = (share: number) => HEIGHT - EDGE.bottom - share * (HEIGHT - EDGE.top - EDGE.bottom);
  // The best are drawn last, over the others.
  const drawn = points.slice(0, MOST).reverse();
  return (
    <svg
      className="parallel"
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      role="img"
      aria-label={`${names.join(", ")} of ${drawn.length} ${what}; the tables of this page have the numbers`}
    >
      {drawn.map((point) => {
        const line = axes.flatMap((axis, at) => {
          const share = axis.place(point.at[at]);
          return share === null ? [] : [`${x(at)},${y(share)}`];
        });
        return (
          <polyline
            key={point.key}
            points={line.join(" ")}
            className={point.best ? "best" : undefined}
            style={{
              opacity: point.best || point.color ? 1 : 0.12 + 0.55 * point.good ** 2,
              ...(point.color && { stroke: point.color }),
            }}
          >
            <title>{point.label}</title>
          </polyline>
        );
      })}
      {axes.map((axis, at) => (
        <g key={axis.name} className="parallel-axis" textAnchor="middle">
          <line x1={x(at)} x2={x(at)} y1={y(0)} y2={y(1)} />
          <text x={x(at)} y={11} className="name">
            {short(axis.name)}
            <title>{axis.name}</title>
          </text>
          <text x={x(at)} y={y(1) - 5}>
            {short(axis.ends[1])}
          </text>
          <text x={x(at)} y={HEIGHT - 6}>
            {short(axis.ends[0])}
          </text>
        </g>
      ))}
    </svg>
  );
}
