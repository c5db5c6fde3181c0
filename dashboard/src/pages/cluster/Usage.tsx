// The use of the engines over time, and the users who held them.
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useState } from "react";

import { api, body } from "../../api/client";
import { code } from "../../api/code";
import { useRights } from "../../app/rights";
import { ErrorNote } from "../../ui/ErrorNote";
import { plural, value } from "../../ui/format";
import { Loading } from "../../ui/Loading";
import { Table } from "../../ui/Table";

const UseChart = lazy(code(async () => ({ default: (await import("./UseChart")).UseChart })));
const SPANS: readonly [number, string][] = [
  [24, "Last 24 hours"],
  [168, "Last 7 days"],
  [720, "Last 30 days"],
];
const hoursText = (hours: number) => (hours < 10 ? hours.toFixed(2) : value(Math.round(hours)));

export function Usage() {
  const [hours, setHours] = useState(24);
  const [all, setAll] = useState(false);
  const { admin } = useRights();
  const query = { hours, ...(all ? { everybody: true } : {}) };
  const { data, error } = useQuery({
    queryKey: ["usage", query],
    queryFn: ({ signal }) => body(api.GET("/api/v1/usage", { params: { query }, signal })),
    refetchInterval: 60_000,
    placeholderData: (before) => before,
  });
  return (
    <section className="card engine" aria-labelledby="usage-over-time">
      <div className="card-head">
        <h2 id="usage-over-time">Use over time</h2>
        <span className="row">
          {admin && (
            <label className="check">
              <input type="checkbox" checked={all} onChange={(event) => setAll(event.target.checked)} />
              Users of all projects
            </label>
          )}
          <select className="input" aria-label="Time" value={hours} onChange={(event) => setHours(Number(event.target.value))}>
            {SPANS.map(([of, name]) => (
              <option key={of} value={of}>
                {name}
              </option>
            ))}
          </select>
          <a className="button small" href={`/api/v1/usage/export?hours=${hours}${all ? "&everybody=true" : ""}`} download="usage.csv">
            CSV
          </a>
        </span>
      </div>
      <ErrorNote error={error} />
      {!data ? (
        !error && <Loading rows={4} />
      ) : data.people.length === 0 && data.engines.length === 0 ? (
        <p className="muted">No attempt has held anything in this time.</p>
      ) : (
        <>
          <Suspense fallback={<Loading rows={6} />}>
            <UseChart engines={data.engines} />
          </Suspense>
          {data.people.length > 0 && (
            <Table
              label="Use by user"
              columns={[
                ...(all ? ["Project"] : []),
                "User",
                { name: "GPU-hours", right: true },
                { name: "CPU-hours", right: true },
                { name: "Attempts", right: true },
              ]}
            >
              {data.people.map((row) => (
                <tr key={`${row.project} ${row.user}`}>
                  {all && <td className="break">{row.project}</td>}
                  <td className="break">{row.user}</td>
                  <td className="right">{hoursText(row.gpu_hours)}</td>
                  <td className="right">{hoursText(row.cpu_hours)}</td>
                  <td className="right">{row.attempts}</td>
                </tr>
              ))}
            </Table>
          )}
          <p className="muted small">
            An attempt holds what its manifest asks for, from its admission until its learners are gone. The chart counts all projects
            {all ? "." : `, the table this one: ${plural(data.people.length, "user")}.`}
          </p>
        </>
      )}
    </section>
  );
}
