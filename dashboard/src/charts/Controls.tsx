// The choices about charts, which all go to the URL.
import { type ReactNode, useState } from "react";

import { dateTime, span, value } from "../ui/format";
import { isEpoch } from "./epochs";
import type { Series } from "./lines";
import { phaseOf } from "./phases";
import type { Kind } from "./queries";
import { type Axis, type ChartSearch, NO_ZOOM } from "./search";

interface ControlsProps {
  kind: Kind;
  axis: Axis;
  search: ChartSearch;
  change: (changes: Partial<ChartSearch>) => void;
  known: readonly Series[];
  children?: ReactNode;
}

const AXES: Record<Axis, string> = { step: "Step", epoch: "Epoch", time: "Time", elapsed: "Elapsed" };
const CHIPS = 32;

export function Controls({ kind, axis, search, change, known, children }: ControlsProps) {
  const epochs: Axis[] = known.some((series) => isEpoch(series.name)) || axis === "epoch" ? ["epoch"] : [];
  const axes: Axis[] = kind === "user" ? ["step", ...epochs, "time", "elapsed"] : ["time", "elapsed"];
  const phases = kind === "user" && known.some((series) => phaseOf(series.name));
  const ids = (of: (series: Series) => number) => [...new Set(known.map(of))].sort((a, b) => a - b).map(String);
  return (
    <section className="card chart-controls" aria-label="Charts">
      <div className="row">
        <input
          className="input"
          type="search"
          data-search
          aria-label="Metric"
          placeholder="Metric  ( / )"
          value={search.q ?? ""}
          onChange={(event) => change({ q: event.target.value || undefined })}
        />
        <label className="row">
          <span className="muted">x</span>
          <select
            className="input"
            value={axis}
            onChange={(event) => change({ x: event.target.value as Axis, ...NO_ZOOM })}
          >
            {axes.map((axis) => (
              <option key={axis} value={axis}>
                {AXES[axis]}
              </option>
            ))}
          </select>
        </label>
        <label className="check">
          <input
            type="checkbox"
            checked={search.log === "1"}
            onChange={(event) => change({ log: event.target.checked ? "1" : undefined })}
          />
          Log scale
        </label>
        {phases && (
          <label className="check">
            <input
              type="checkbox"
              checked={search.together === "1"}
              onChange={(event) => change({ together: event.target.checked ? "1" : undefined })}
            />
            Training and validation together
          </label>
        )}
        <Smoothing now={search.smooth ?? 0} change={(smooth) => change({ smooth: smooth || undefined })} />
        {children}
      </div>
      <Chips what="Learner" ids={ids((series) => series.learner)} now={search.learner} set={(learner) => change({ learner })} />
      <Chips what="Attempt" ids={ids((series) => series.attempt)} now={search.attempt} set={(attempt) => change({ attempt })} />
      <Zoom key={`${search.from} ${search.to}`} axis={axis} search={search} change={change} />
    </section>
  );
}

function Smoothing({ now, change }: { now: number; change: (percent: number) => void }) {
  return (
    <label className="row">
      <span className="muted">Smoothing</span>
      <input
        type="range"
        min={0}
        max={99}
        value={now}
        aria-valuetext={`${now} percent`}
        onChange={(event) => change(Number(event.target.value))}
      />
      <span className="numbers smoothing">{(now / 100).toFixed(2)}</span>
    </label>
  );
}

/** Choose some of the learners or attempts; none chosen is all. */
function Chips({
  what,
  ids,
  now,
  set,
}: {
  what: string;
  ids: string[];
  now: string[] | undefined;
  set: (chosen: string[] | undefined) => void;
}) {
  if (ids.length < 2) return null;
  const toggle = (id: string) => {
    const chosen = now?.includes(id) ? now.filter((other) => other !== id) : [...(now ?? []), id];
    set(chosen.length && chosen.length < ids.length ? chosen : undefined);
  };
  return (
    <div className="row" role="group" aria-label={`${what}s`}>
      <span className="muted">{what}</span>
      {ids.slice(0, CHIPS).map((id) => (
        <button
          key={id}
          type="button"
          className={now?.includes(id) ? "chip chosen" : "chip"}
          aria-pressed={now?.includes(id) ?? false}
          onClick={() => toggle(id)}
        >
          {id}
        </button>
      ))}
      {ids.length > CHIPS && <span className="muted">and {ids.length - CHIPS} more</span>}
      {now && (
        <button type="button" className="button quiet small" onClick={() => set(undefined)}>
          all
        </button>
      )}
    </div>
  );
}

/** The range in numbers: what dragging does, for the keyboard. */
function Zoom({
  axis,
  search,
  change,
}: {
  axis: Axis;
  search: ChartSearch;
  change: (changes: Partial<ChartSearch>) => void;
}) {
  const [from, setFrom] = useState(search.from === undefined ? "" : String(search.from));
  const [to, setTo] = useState(search.to === undefined ? "" : String(search.to));
  const zoomed = search.from !== undefined && search.to !== undefined;
  const shown = (at: number) => (axis === "time" ? dateTime(at) : axis === "elapsed" ? span(at) : value(at));
  const unit = axis === "elapsed" ? "seconds" : `${axis}s`;
  const fits = from !== "" && to !== "" && Number(from) < Number(to);
  return (
    <form
      className="row"
      onSubmit={(event) => {
        event.preventDefault();
        if (fits) change({ from: Number(from), to: Number(to) });
      }}
    >
      {axis === "time" ? (
        <span className="muted">
          {zoomed ? `${shown(search.from ?? 0)} – ${shown(search.to ?? 0)}` : "Drag in a chart to zoom in all."}
        </span>
      ) : (
        <>
          <span className="muted">Zoom</span>
          <input
            className="input zoom"
            type="number"
            step="any"
            aria-label={`From, in ${unit}`}
            placeholder="from"
            value={from}
            onChange={(event) => setFrom(event.target.value)}
          />
          <span className="muted">–</span>
          <input
            className="input zoom"
            type="number"
            step="any"
            aria-label={`To, in ${unit}`}
            placeholder="to"
            value={to}
            onChange={(event) => setTo(event.target.value)}
          />
          <button type="submit" className="button small" disabled={!fits}>
            Zoom
          </button>
        </>
      )}
      {zoomed && (
        <button type="button" className="button small" onClick={() => change(NO_ZOOM)}>
          Show all
        </button>
      )}
      {axis !== "time" && !zoomed && <span className="muted small">or drag in a chart</span>}
    </form>
  );
}
