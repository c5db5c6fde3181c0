// One chart: uPlot, drawn in the theme's colours. Dragging zooms, a double click shows all again.
import "uplot/dist/uPlot.min.css";

import { useEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";

import { clock } from "../ui/format";
import type { Mark } from "./best";
import { type Line, positive, smoothed } from "./lines";
import type { Axis } from "./search";
import { useThemeTurns } from "./theme";

const HEIGHT = 220; // px
/** Between an axis's marks of bytes. */
const POWERS = Array.from({ length: 60 }, (_, power) => 2 ** power);

/** Marks of a time axis, by their distance in ms: 24 hours, with the day below the first one of each. */
const TIMES: uPlot.Axis.Values = [
  [86_400_000 * 28, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [86_400_000, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [60_000, "{HH}:{mm}", "\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1],
  [1000, "{HH}:{mm}:{ss}", "\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1],
  [1, "{ss}.{fff}", "\n{D} {MMM} {HH}:{mm}", null, "\n{D} {MMM} {HH}:{mm}", null, "\n{HH}:{mm}", null, 1],
];

interface PlotProps {
  lines: readonly Line[];
  axis: Axis;
  log: boolean;
  /** Percent. */
  smooth: number;
  range: readonly [number, number] | null;
  format: (value: number | null | undefined) => string;
  /** Marks of the y axis are multiples of powers of two. */
  binary: boolean;
  formatX: (value: number) => string;
  onZoom: (range: [number, number] | null) => void;
  /** In px. */
  height?: number;
  label: string;
  /** The y axis begins at 0. */
  zero?: boolean;
  /** The best point. */
  mark?: Mark | null;
}

interface Picture {
  data: uPlot.AlignedData;
  series: uPlot.Series[];
  bands: uPlot.Band[];
  /** Where each line's own values stand in `data`, and its smoothed ones. */
  places: { raw: number; shown: number }[];
}

const LEGEND_ROWS = 4; // what surely fits into .plot-legend

export function Plot({ lines, axis, log, smooth, range, format, binary, formatX, onZoom, height = HEIGHT, label, zero = false, mark = null }: PlotProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [at, setAt] = useState<number | null>(null);
  const anyPositive = useMemo(
    () => !log || lines.some((line) => line.last.some((value) => value !== null && value > 0)),
    [lines, log],
  );
  const onLog = log && anyPositive;
  const picture = useMemo(() => draw(lines, onLog, smooth), [lines, onLog, smooth]);
  const latest = useRef({ picture, onZoom, format, formatX, range, mark });
  useEffect(() => {
    latest.current = { picture, onZoom, format, formatX, range, mark };
  });

  // What needs another uPlot, and not only other data.
  const shape = `${axis}|${onLog}|${smooth > 0}|${lines.map((line) => line.key + line.color + line.dashed).join()}`;
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const muted = () => getComputedStyle(element).getPropertyValue("--muted").trim() || "gray";
    const grid = () => getComputedStyle(element).getPropertyValue("--line").trim() || "gray";
    const style = { stroke: muted, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1, size: 4 } };
    const font = `11px ${getComputedStyle(element).fontFamily}`;
    const { series, bands, data } = latest.current.picture;
    const made = new uPlot(
      {
        width: element.clientWidth || 300,
        height,
        ms: 1,
        padding: [8, 16, 0, 0],
        legend: { show: false },
        cursor: {
          y: false,
          points: { size: 7 },
          drag: { x: true, y: false, setScale: false },
          bind: {
            dblclick: () => () => {
              latest.current.onZoom(null);
              return null;
            },
          },
        },
        scales: {
          x: {
            time: axis === "time",
            range: (_, min, max) => {
              const [from, to] = latest.current.range ?? [min ?? 0, max ?? 1];
              return from < to ? [from, to] : [from - 1, to + 1];
            },
          },
          y: onLog ? { distr: 3 } : zero ? { range: (_, __, max) => [0, Math.max(1, 1.08 * max)] } : {},
        },
        axes: [
          {
            ...style,
            font,
            size: axis === "time" ? 42 : 28,
            ...(axis === "time" ? { space: 72, values: TIMES } : { values: (_: uPlot, marks: number[]) => marks.map(latest.current.formatX) }),
          },
          {
            ...style,
            font,
            size: height < HEIGHT ? 46 : 64,
            ...(binary && !onLog ? { incrs: POWERS } : {}),
            values: (_, marks) => marks.map((mark) => (mark === null ? "" : latest.current.format(mark))),
          },
        ],
        series,
        bands,
        hooks: {
          draw: [(self) => drawMark(self, latest.current.mark)],
          setCursor: [(self) => setAt(self.cursor.idx ?? null)],
          setSelect: [
            (self) => {
              const { left, width } = self.select;
              if (width < 4) return;
              latest.current.onZoom([self.posToVal(left, "x"), self.posToVal(left + width, "x")]);
              self.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            },
          ],
        },
      },
      data,
      element,
    );
    plot.current = made;
    const sizes = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    sizes.observe(element);
    return () => {
      sizes.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape, axis, onLog, binary, height, zero]);

  useEffect(() => {
    plot.current?.setData(picture.data, true);
  }, [picture, range, mark?.x, mark?.y]);

  const theme = useThemeTurns();
  useEffect(() => {
    plot.current?.redraw(false, true);
  }, [theme]);

  const x = at === null ? undefined : picture.data[0][at];
  return (
    <>
      <div ref={box} className="plot" role="img" aria-label={label} />
      {log && !anyPositive && <p className="muted small">No value above 0: a linear scale.</p>}
      <p className="plot-x muted numbers">
        {x === undefined ? " " : axis === "time" ? clock(x) : `${axis === "elapsed" ? "" : `${axis} `}${formatX(x)}`}
      </p>
      {/* A long one is scrolled, by keys too. */}
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
      <ul className="plot-legend" tabIndex={lines.length > LEGEND_ROWS ? 0 : undefined}>
        {lines.map((line, number) => (
          <li key={line.key}>
            <i className={line.dashed ? "swatch dashed" : "swatch"} style={{ color: line.color }} />
            <span className="break">{line.label}</span>
            <span className="numbers plot-value">{format(valueAt(picture, number, line, at, smooth > 0))}</span>
          </li>
        ))}
      </ul>
    </>
  );
}

/** A ring around the point, where it is in sight. */
function drawMark(plot: uPlot, mark: Mark | null): void {
  if (!mark) return;
  const [x, y] = [plot.valToPos(mark.x, "x", true), plot.valToPos(mark.y, "y", true)];
  const { left, top, width, height } = plot.bbox;
  if (!(x >= left - 1 && x <= left + width + 1 && y >= top - 1 && y <= top + height + 1)) return;
  const { ctx } = plot;
  ctx.save();
  ctx.strokeStyle = mark.color;
  ctx.lineWidth = 2 * devicePixelRatio;
  ctx.beginPath();
  ctx.arc(x, y, 5 * devicePixelRatio, 0, 2 * Math.PI);
  ctx.stroke();
  ctx.restore();
}

/** A line's value under the cursor, or its newest one. A line without a point just there has its last one before. */
function valueAt(picture: Picture, number: number, line: Line, at: number | null, smooth: boolean) {
  const place = picture.places[number];
  if (at === null || !place) return line.last.at(-1);
  const values = picture.data[smooth ? place.shown : place.raw] ?? [];
  for (let index = Math.min(at, values.length - 1); index >= 0; index -= 1) {
    const value = values[index];
    if (value !== undefined) return value;
  }
  return undefined;
}

/** Each line is its last values, with a band from the smallest to the largest; or what is smoothed, over what was. */
function draw(lines: readonly Line[], log: boolean, smooth: number): Picture {
  const fit = log ? positive : (values: (number | null)[]) => values;
  const series: uPlot.Series[] = [{}];
  const bands: uPlot.Band[] = [];
  const tables: uPlot.AlignedData[] = [];
  const places: Picture["places"] = [];
  for (const line of lines) {
    const base = series.length;
    const last = fit(line.last);
    const pen: uPlot.Series = {
      stroke: line.color,
      width: 1.6,
      points: { show: line.x.length < 2, size: 6 },
      ...(line.dashed ? { dash: [5, 4] } : {}),
    };
    if (smooth > 0) {
      series.push({ ...pen, alpha: 0.35, width: 1, points: { show: false } }, pen);
      // Smoothed before zooming: the same point has the same value in each range.
      const whole = line.whole ?? line;
      tables.push([line.x, last] as uPlot.AlignedData, [whole.x, smoothed(fit(whole.last), smooth / 100)] as uPlot.AlignedData);
      places.push({ raw: base, shown: base + 1 });
    } else {
      const edge: uPlot.Series = { stroke: "transparent", width: 0, points: { show: false } };
      series.push(pen, edge, edge);
      bands.push({ series: [base + 1, base + 2], fill: `${line.color}33` });
      tables.push([line.x, last, fit(line.max), fit(line.min)] as uPlot.AlignedData);
      places.push({ raw: base, shown: base });
    }
  }
  return { data: tables.length ? uPlot.join(tables) : [[]], series, bands, places };
}
