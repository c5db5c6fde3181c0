import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { Empty } from "../../ui/Empty";
import { ErrorNote } from "../../ui/ErrorNote";
import { ago, dateTime } from "../../ui/format";
import { Loading } from "../../ui/Loading";
import { Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { useTitle } from "../../ui/useTitle";
import { StartedJob, State, Triggers } from "./Parts";
import { schedulesQuery } from "./queries";

export function SchedulesPage() {
  useTitle("Schedules");
  const { data, error, isPending, hasNextPage, fetchNextPage, isFetchingNextPage } = useInfiniteQuery(schedulesQuery);
  const schedules = data?.pages.flatMap((page) => page.schedules) ?? [];
  return (
    <>
      <div className="page-head">
        <h1>Schedules</h1>
      </div>
      <ErrorNote error={error} />
      {isPending ? (
        !error && <Loading rows={6} />
      ) : schedules.length === 0 ? (
        <div className="card">
          <Empty title="No schedules yet" command="weft schedule create manifest.yml . --cron '0 3 * * *'">
            <p>A schedule starts jobs at times, and at promotions of a model.</p>
          </Empty>
        </div>
      ) : (
        <div className="card flush">
          <Table label="Table of schedules" columns={["Schedule", "State", "Starts at", "Next", "Last", "Job", "User"]}>
            {schedules.map((schedule) => (
              <tr key={schedule.id}>
                <td>
                  <Link to="/schedules/$scheduleId" params={{ scheduleId: schedule.id }} className="break">
                    {schedule.name}
                  </Link>
                </td>
                <td title={schedule.reason}>
                  <State name={schedule.state} />
                </td>
                <td>
                  <Triggers schedule={schedule} />
                </td>
                <td>{schedule.next_at ? <Time at={schedule.next_at}>{dateTime(schedule.next_at)}</Time> : "–"}</td>
                <td>{schedule.last ? <Time at={schedule.last.due_at}>{ago(schedule.last.due_at)}</Time> : "–"}</td>
                <td>
                  {schedule.last && <StartedJob start={schedule.last} />}{" "}
                  {schedule.last?.job_state && <State name={schedule.last.job_state} />}
                </td>
                <td>{schedule.user}</td>
              </tr>
            ))}
          </Table>
        </div>
      )}
      {hasNextPage && (
        <div className="empty">
          <button type="button" className="button" disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
            {isFetchingNextPage ? "Loading …" : "More schedules"}
          </button>
        </div>
      )}
    </>
  );
}
