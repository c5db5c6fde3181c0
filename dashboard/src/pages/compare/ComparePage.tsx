// Up to ten jobs beside each other: what they are, how their metrics went, and what differs in them.
import "../../styles/charts.css";

import { useQueries } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useState } from "react";

import { jobQuery } from "../../api/queries";
import { chartedJob } from "../../charts/jobs";
import { Panel } from "../../charts/Panel";
import { MOST_JOBS } from "../../charts/search";
import { Empty } from "../../ui/Empty";
import { Loading } from "../../ui/Loading";
import { useTitle } from "../../ui/useTitle";
import { AnotherJob } from "../jobs/AnotherJob";
import type { CompareSearch } from "./search";
import { Space } from "./Space";
import { Differences, Facts, Parameters, Values } from "./Tables";

const route = getRouteApi("/inside/compare");

export function ComparePage() {
  useTitle("Compare");
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const [adding, setAdding] = useState(false);
  const ids = search.job ?? [];
  const found = useQueries({ queries: ids.map((id) => jobQuery(id)) });
  const jobs = found.flatMap((query) => query.data ?? []);
  const all = search.all === "1" || jobs.length < 2;
  const missing = ids.filter((_, at) => found[at]?.error && !found[at]?.data);
  const change = (changes: Partial<CompareSearch>) =>
    void navigate({ search: (before) => ({ ...before, ...changes }), replace: true, resetScroll: false });
  return (
    <>
      <div className="page-head">
        <h1>Compare</h1>
        <div className="actions">
          {jobs.length > 1 && (
            <label className="check">
              <input
                type="checkbox"
                checked={!all}
                onChange={(event) => change({ all: event.target.checked ? undefined : "1" })}
              />
              Only what differs
            </label>
          )}
          {ids.length < MOST_JOBS && (
            <button type="button" className="button" onClick={() => setAdding(true)}>
              Add a job …
            </button>
          )}
        </div>
      </div>
      {missing.length > 0 && (
        <div className="note warn" role="status">
          <p>Not found in this project: {missing.join(", ")}</p>
        </div>
      )}
      {ids.length === 0 ? (
        <div className="card">
          <Empty title="No jobs chosen">
            <p>Select up to {MOST_JOBS} jobs in the list, then “Compare”.</p>
            <Link to="/" className="button">
              To the jobs
            </Link>
          </Empty>
        </div>
      ) : jobs.length === 0 ? (
        missing.length < ids.length && <Loading rows={6} />
      ) : (
        <div className="stack">
          <Facts jobs={jobs} all={all} drop={(id) => change({ job: ids.filter((other) => other !== id) })} />
          <Panel
            jobs={jobs.map(chartedJob)}
            kind="user"
            search={search}
            change={change}
            empty={<p className="muted">None of these jobs has reported a metric.</p>}
          />
          <Space jobs={jobs} />
          <Values jobs={jobs} all={all} />
          <Parameters jobs={jobs} all={all} />
          <Differences jobs={jobs} />
        </div>
      )}
      {adding && <AnotherJob not={ids} choose={(id) => change({ job: [...ids, id] })} onClose={() => setAdding(false)} />}
    </>
  );
}
