import "../../styles/sweeps.css";

import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { Empty } from "../../ui/Empty";
import { ErrorNote } from "../../ui/ErrorNote";
import { ago, value } from "../../ui/format";
import { Loading } from "../../ui/Loading";
import { Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { useTitle } from "../../ui/useTitle";
import { sweepsQuery } from "./queries";
import { Progress, SweepState } from "./SweepState";

export function SweepsPage() {
  useTitle("Sweeps");
  const { data, error, isPending, hasNextPage, fetchNextPage, isFetchingNextPage } = useInfiniteQuery(sweepsQuery);
  const sweeps = data?.pages.flatMap((page) => page.sweeps) ?? [];
  return (
    <>
      <div className="page-head">
        <h1>Sweeps</h1>
      </div>
      <ErrorNote error={error} />
      {isPending ? (
        !error && <Loading rows={6} />
      ) : sweeps.length === 0 ? (
        <div className="card">
          <Empty title="No sweeps yet" command="weft sweep manifest.yml --vary env.LR=log:1e-4..1e-1 --metric val/loss --goal min">
            <p>A sweep runs many jobs that differ in their parameters only, and searches for the best parameters.</p>
          </Empty>
        </div>
      ) : (
        <div className="card flush">
          <Table
            label="Table of sweeps"
            columns={["Sweep", "State", "Trials", "Metric", { name: "Best", right: true }, "Search", "User", "Created"]}
          >
            {sweeps.map((sweep) => (
              <tr key={sweep.id}>
                <td className="sweep-name">
                  <Link to="/sweeps/$sweepId" params={{ sweepId: sweep.id }} className="clip" title={`${sweep.name}\n${sweep.id}`}>
                    {sweep.name}
                  </Link>
                </td>
                <td title={sweep.reason}>
                  <SweepState sweep={sweep} />
                </td>
                <td>
                  <Progress sweep={sweep} />
                </td>
                <td className="nowrap">
                  {sweep.metric} <span className="muted">{sweep.goal}</span>
                </td>
                <td className="right">{value(sweep.best?.value)}</td>
                <td>{sweep.search}</td>
                <td>{sweep.user}</td>
                <td>
                  <Time at={sweep.created_at}>{ago(sweep.created_at)}</Time>
                </td>
              </tr>
            ))}
          </Table>
        </div>
      )}
      {hasNextPage && (
        <div className="empty">
          <button type="button" className="button" disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
            {isFetchingNextPage ? "Loading …" : "More sweeps"}
          </button>
        </div>
      )}
    </>
  );
}
