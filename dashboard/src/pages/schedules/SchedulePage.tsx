import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";

import { ApiError } from "../../api/client";
import { OtherProjects } from "../../app/project";
import { Copy } from "../../ui/Copy";
import { Empty } from "../../ui/Empty";
import { ErrorNote } from "../../ui/ErrorNote";
import { Fact } from "../../ui/Fact";
import { dateTime } from "../../ui/format";
import { Loading } from "../../ui/Loading";
import { Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { useTitle } from "../../ui/useTitle";
import { StartedJob, State, Triggers } from "./Parts";
import { type Schedule, scheduleQuery, type Start, startsQuery } from "./queries";
import { ScheduleActions } from "./ScheduleActions";

const route = getRouteApi("/inside/schedules/$scheduleId");

export function SchedulePage() {
  const { scheduleId } = route.useParams();
  const { data: schedule, error } = useQuery(scheduleQuery(scheduleId));
  useTitle(schedule?.name ?? scheduleId);
  if (error instanceof ApiError && error.status === 404) {
    return (
      <Empty title="There is no such schedule" command="weft schedule list">
        <p className="break">
          No schedule <code>{scheduleId}</code> in this project.
        </p>
        <OtherProjects />
        <Link to="/schedules" className="button">
          To the schedules
        </Link>
      </Empty>
    );
  }
  if (!schedule) return error ? <ErrorNote error={error} /> : <Loading rows={6} />;
  return (
    <>
      <div className="page-head">
        <div className="job-title">
          <h1 className="break">{schedule.name}</h1>
          <span className="muted mono nowrap">
            {schedule.id} <Copy text={schedule.id} what="the schedule's id" />
          </span>
        </div>
        <State name={schedule.state} />
        <ScheduleActions schedule={schedule} />
      </div>
      <div className="stack">
        <Facts schedule={schedule} />
        <Starts schedule={schedule} />
      </div>
    </>
  );
}

function Facts({ schedule }: { schedule: Schedule }) {
  return (
    <section className="card" aria-labelledby="facts">
      <h2 id="facts">About</h2>
      <dl className="facts">
        <Fact name="Starts at">
          <Triggers schedule={schedule} />
        </Fact>
        <Fact name="Next">
          {schedule.next_at ? <Time at={schedule.next_at}>{dateTime(schedule.next_at)}</Time> : "no time is planned"}
        </Fact>
        {schedule.reason && <Fact name="Reason">{schedule.reason}</Fact>}
        {schedule.overlap && (
          <Fact name="While a job runs">{schedule.overlap === "queue" ? "one job waits for it" : "no job starts"}</Fact>
        )}
        <Fact name="User">{schedule.user}</Fact>
        <Fact name="Created">
          <Time at={schedule.created_at}>{dateTime(schedule.created_at)}</Time>
        </Fact>
      </dl>
      <p>
        <Link to="/" search={{ label: [`schedule=${schedule.id}`] }}>
          All its jobs
        </Link>
      </p>
    </section>
  );
}

function Starts({ schedule }: { schedule: Schedule }) {
  const { data, error, isPending, hasNextPage, fetchNextPage, isFetchingNextPage } = useInfiniteQuery(
    startsQuery(schedule.id),
  );
  const starts = data?.pages.flatMap((page) => page.starts) ?? [];
  return (
    <section className="card flush" aria-labelledby="starts">
      <h2 id="starts" className="card-title">
        Starts
      </h2>
      <ErrorNote error={error} />
      {isPending ? (
        !error && <Loading rows={4} />
      ) : starts.length === 0 ? (
        <p className="card-foot muted">None yet.</p>
      ) : (
        <Table label="Table of starts" columns={["Due", "Because of", "Job", "State", "Reason"]}>
          {starts.map((start) => (
            <tr key={start.id}>
              <td>
                <Time at={start.due_at}>{dateTime(start.due_at)}</Time>
              </td>
              <td>{because(start)}</td>
              <td>{start.job ? <StartedJob start={start} /> : "–"}</td>
              <td>
                <State name={start.job_state ?? start.state} live={start.state === "DUE"} />
              </td>
              <td className="break">{start.reason}</td>
            </tr>
          ))}
        </Table>
      )}
      {hasNextPage && (
        <div className="card-foot">
          <button type="button" className="button" disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
            {isFetchingNextPage ? "Loading …" : "More starts"}
          </button>
        </div>
      )}
    </section>
  );
}

function because({ trigger, version, user }: Start): string {
  if (trigger === "time") return "its time";
  const by = user ? ` by ${user}` : "";
  return trigger === "promotion" ? `the promotion of version ${version}${by}` : `a request${by}`;
}
