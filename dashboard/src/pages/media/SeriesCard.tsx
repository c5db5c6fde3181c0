import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";

import { value } from "../../ui/format";
import { Loading } from "../../ui/Loading";
import { ErrorNote } from "../../ui/ErrorNote";
import { Markdown } from "../../ui/Markdown";
import { fileUrl, isImage, loadPreview } from "../files/preview";
import { PreviewBody } from "../files/PreviewBody";
import type { Bar } from "./histogram";
import type { Series, Step } from "./series";

/** One name, at one step; the newest at first. */
export function SeriesCard({ jobId, series }: { jobId: string; series: Series }) {
  const [chosen, setChosen] = useState<number | null>(null);
  const last = series.steps.length - 1;
  const at = Math.min(chosen ?? last, last);
  const now = series.steps[at];
  if (!now) return null;
  const step = now.step.toLocaleString("en");
  return (
    <section className="card medium" aria-label={series.name}>
      <div className="card-head">
        <h2 className="break">{series.name}</h2>
        <span className="muted nowrap">step {step}</span>
      </div>
      {last > 0 && (
        <input
          type="range"
          aria-label={`Step of ${series.name}`}
          aria-valuetext={`step ${step}`}
          min={0}
          max={last}
          value={at}
          onChange={(event) => setChosen(Number(event.target.value))}
        />
      )}
      <Shown jobId={jobId} name={series.name} step={now} />
    </section>
  );
}

function Shown({ jobId, name, step: { step, shown } }: { jobId: string; name: string; step: Step }) {
  const alt = `${name} at step ${step}`;
  switch (shown.kind) {
    case "image":
      return <Picture image={shown.image} alt={alt} />;
    case "histogram":
      return <Bars bars={shown.bars} label={alt} />;
    case "text":
      return <Markdown text={shown.text} />;
    case "table":
      return <Cells rows={shown.rows} label={alt} />;
    case "file":
      return isImage(shown.path) ? (
        <img src={`${fileUrl(jobId, shown.path)}?preview=true`} alt={alt} />
      ) : (
        <File key={shown.path} jobId={jobId} path={shown.path} />
      );
  }
}

function Picture({ image, alt }: { image: Uint8Array; alt: string }) {
  // The browser finds out itself which of its formats it is; no script runs in an image.
  const url = useMemo(() => URL.createObjectURL(new Blob([new Uint8Array(image)], { type: "image/png" })), [image]);
  useEffect(() => () => URL.revokeObjectURL(url), [url]);
  return <img src={url} alt={alt} />;
}

const [WIDTH, HEIGHT] = [400, 140];

function Bars({ bars, label }: { bars: readonly Bar[]; label: string }) {
  const most = Math.max(...bars.map(({ count }) => count), 1e-9);
  const [first, last] = [bars[0], bars.at(-1)];
  if (!first || !last) return <p className="muted">No values</p>;
  const width = WIDTH / bars.length;
  return (
    <figure className="histogram">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={label}>
        {bars.map(({ from, to, count }, at) => (
          <rect key={at} x={at * width} y={HEIGHT * (1 - count / most)} width={Math.max(0.5, width - 1)} height={(HEIGHT * count) / most}>
            <title>{`${value(from)} to ${value(to)}: ${value(count)}`}</title>
          </rect>
        ))}
      </svg>
      <figcaption className="muted">
        <span>{value(first.from)}</span>
        <span>{value(last.to)}</span>
      </figcaption>
    </figure>
  );
}

function Cells({ rows, label }: { rows: readonly (readonly string[])[]; label: string }) {
  return (
    // Scrolled by keys.
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <div className="table-wrap" role="region" aria-label={label} tabIndex={0}>
      <table className="table">
        <tbody>
          {rows.map((row, at) => (
            <tr key={at}>
              {row.map((cell, column) => (
                <td key={column}>{cell}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function File({ jobId, path }: { jobId: string; path: string }) {
  const { data, error } = useQuery({
    queryKey: ["preview", jobId, path],
    queryFn: ({ signal }) => loadPreview(`${fileUrl(jobId, path)}?preview=true`, signal),
    gcTime: 60_000,
  });
  if (!data) return error ? <ErrorNote error={error} /> : <Loading />;
  return <PreviewBody preview={data} name={path} />;
}
