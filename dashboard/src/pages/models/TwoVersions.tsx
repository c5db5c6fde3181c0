// Two versions of a model side by side.
import "../../styles/charts.css";

import { useQueries } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import { api, body } from "../../api/client";
import type { components } from "../../api/schema";
import { ErrorNote } from "../../ui/ErrorNote";
import { dateTime, plural, size, span, value } from "../../ui/format";
import { Loading } from "../../ui/Loading";
import { sourceOf } from "../code/source";
import type { Told } from "./lineage";
import { better, judged } from "./summary";

type Detail = components["schemas"]["VersionDetail"];

export const versionQuery = (name: string, version: number) => ({
  queryKey: ["model", name, "version", version],
  queryFn: ({ signal }: { signal: AbortSignal }) =>
    body(
      api.GET("/api/v1/models/{name}/versions/{version}", {
        params: { path: { name, version: String(version) } },
        signal,
      }),
    ),
});

export function TwoVersions({ name, versions }: { name: string; versions: readonly [number, number] }) {
  const answers = useQueries({ queries: versions.map((version) => versionQuery(name, version)) });
  const error = answers.find((answer) => answer.error)?.error;
  const [left, right] = answers.map((answer) => answer.data);
  if (!left || !right) return error ? <ErrorNote error={error} /> : <Loading rows={4} />;
  const both = [left, right];
  const metrics = [...new Set(both.flatMap((version) => Object.keys(version.metrics)))].sort();
  const rows = FACTS.filter(({ of }) => both.some((version) => of(version, version.lineage as Told)));
  return (
    <section className="card flush" aria-labelledby="two-versions">
      <h2 id="two-versions" className="card-title">
        Versions {versions[0]} and {versions[1]}
      </h2>
      <div className="table-wrap">
        <table className="table compare">
          <thead>
            <tr>
              <th scope="col">
                <span className="visually-hidden">What</span>
              </th>
              {both.map((version) => (
                <th key={version.version} scope="col">
                  {version.reference} {version.stages.length > 0 && <span className="muted">{version.stages.join(", ")}</span>}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            <tr>
              <th scope="row">Job</th>
              {both.map((version) => (
                <td key={version.version}>
                  <Link to="/jobs/$jobId" params={{ jobId: version.job }}>
                    {version.job_name || version.job}
                  </Link>
                </td>
              ))}
            </tr>
            {metrics.map((metric) => {
              const values = both.map((version) => judged(version.metrics, metric));
              const best = better(metric, values);
              return (
                <tr key={metric}>
                  <th scope="row" className="mono break">
                    {metric}
                  </th>
                  {values.map((found, at) => (
                    <td key={at} className="numbers">
                      {at === best ? <strong>{value(found)} ✓</strong> : value(found)}
                      {at === best && <span className="visually-hidden"> better</span>}
                    </td>
                  ))}
                </tr>
              );
            })}
            {rows.map(({ title, of }) => {
              const cells = both.map((version) => of(version, version.lineage as Told));
              return (
                <tr key={title}>
                  <th scope="row">{title}</th>
                  {cells.map((cell, at) => (
                    <td key={at} className="own-text">
                      {at === 1 && cell !== cells[0] && cell && title !== "Made" ? <mark className="changed">{cell}</mark> : (cell ?? "–")}
                    </td>
                  ))}
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      <p className="card-foot row">
        <Link to="/compare" search={{ job: both.map((version) => version.job) }} className="button small">
          Compare their jobs
        </Link>
        <Link
          to="/jobs/$jobId/code"
          params={{ jobId: right.job }}
          search={{ against: left.job }}
          className="button small"
        >
          Changes of the code
        </Link>
      </p>
    </section>
  );
}

const part = (of: { files: number; bytes: number } | null | undefined) => of && `${plural(of.files, "file")}, ${size(of.bytes)}`;

const FACTS: readonly { title: string; of: (version: Detail, told: Told) => ReactNode }[] = [
  { title: "Description", of: ({ description }) => description || null },
  { title: "Notes", of: ({ notes }) => notes || null },
  { title: "By", of: ({ user }) => user },
  { title: "Made", of: ({ created_at }) => dateTime(created_at) },
  {
    title: "Run",
    of: (_, { run }) => run && `${plural(run.learners, "learner")} on ${run.engine}, ${span(run.seconds)}`,
  },
  { title: "Starts from", of: ({ parent }) => parent },
  { title: "Image", of: (_, { image }) => image?.reference },
  { title: "Code", of: (_, told) => (told.repo ? sourceOf({ repo: told.repo }) : told.code_sha256?.slice(0, 12)) },
  { title: "Data", of: (_, { data }) => part(data) },
  { title: "Files", of: ({ files }) => part(files) },
];
