import "../../styles/charts.css";
import "../../styles/sweeps.css";

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";

import { ApiError } from "../../api/client";
import { jobQuery } from "../../api/queries";
import { OtherProjects } from "../../app/project";
import { useRights } from "../../app/rights";
import { Copy } from "../../ui/Copy";
import { Empty } from "../../ui/Empty";
import { ErrorNote } from "../../ui/ErrorNote";
import { Fact } from "../../ui/Fact";
import { dateTime, since, value } from "../../ui/format";
import { Loading } from "../../ui/Loading";
import { Time } from "../../ui/Time";
import { useNow } from "../../ui/useNow";
import { useTitle } from "../../ui/useTitle";
import { sweepQuery, trialsQuery } from "./queries";
import { RegisterButton } from "../models/Register";
import { ParametersAndValue, Slices } from "./Slices";
import { SweepActions } from "./SweepActions";
import { Progress, SweepState } from "./SweepState";
import { TrialCurves } from "./TrialCurves";
import { TrialPlot } from "./TrialPlot";
import { over, shown, type Sweep, valueLines, withRungs } from "./trials";
import { TrialTable } from "./TrialTable";

const route = getRouteApi("/inside/sweeps/$sweepId");

export function SweepPage() {
  const { sweepId } = route.useParams();
  const { data: sweep, error } = useQuery(sweepQuery(sweepId));
  useTitle(sweep?.name ?? sweepId);
  if (error instanceof ApiError && error.status === 404) {
    return (
      <Empty title="There is no such sweep" command="weft sweep list">
        <p className="break">
          No sweep <code>{sweepId}</code> in this project.
        </p>
        <OtherProjects />
        <Link to="/sweeps" className="button">
          To the sweeps
        </Link>
      </Empty>
    );
  }
  if (!sweep) return error ? <ErrorNote error={error} /> : <Loading rows={6} />;
  return (
    <>
      <div className="page-head">
        <div className="job-title">
          <h1 className="break">{sweep.name}</h1>
          <span className="muted mono nowrap">
            {sweep.id} <Copy text={sweep.id} what="the sweep's id" />
          </span>
        </div>
        <SweepState sweep={sweep} />
        <SweepActions sweep={sweep} />
      </div>
      <Body sweep={sweep} />
    </>
  );
}

function Body({ sweep }: { sweep: Sweep }) {
  const { data, error, isPending, hasNextPage, fetchNextPage, isFetchingNextPage } = useInfiniteQuery(
    trialsQuery(sweep.id, !over(sweep)),
  );
  const trials = data?.pages.flatMap((page) => page.trials) ?? [];
  const lines = valueLines(trials, sweep.goal);
  return (
    <div className="stack">
      <div className="sweep-top">
        <Facts sweep={sweep} />
        <section className="card" aria-labelledby="values">
          <h2 id="values">{sweep.metric} by trial</h2>
          <TrialPlot
            lines={lines}
            axis="elapsed"
            formatX={(number) => (Number.isInteger(number) ? `trial ${number}` : "")}
            label={`Chart of ${sweep.metric} by trial: best ${value(sweep.best?.value)}`}
            none={isPending ? "…" : "No trial has a value yet."}
          />
        </section>
      </div>
      <ErrorNote error={error} />
      <div className="chart-pair">
        <TrialCurves sweep={sweep} trials={trials} />
        <ParametersAndValue sweep={sweep} trials={trials} />
      </div>
      <Slices sweep={sweep} trials={trials} />
      {isPending ? !error && <Loading rows={6} /> : <TrialTable sweep={sweep} trials={trials} />}
      {hasNextPage && (
        <div className="empty">
          <button type="button" className="button" disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
            {isFetchingNextPage ? "Loading …" : `More trials: ${trials.length.toLocaleString()} of ${sweep.asked.toLocaleString()} are shown`}
          </button>
        </div>
      )}
    </div>
  );
}

function Facts({ sweep }: { sweep: Sweep }) {
  const now = useNow(!over(sweep));
  const { best } = sweep;
  const { edit } = useRights();
  return (
    <section className="card" aria-labelledby="best">
      <div className="row spread">
        <h2 id="best">Best trial</h2>
        {edit && best?.job && best.job_state === "COMPLETED" && (over(sweep) || !withRungs(sweep)) && <RegisterBest job={best.job} />}
      </div>
      {best ? (
        <>
          <p className="sweep-best">
            <strong className="numbers">{value(best.value)}</strong>{" "}
            <span className="muted">
              {sweep.metric}, {sweep.goal === "max" ? "the larger the better" : "the smaller the better"}
            </span>
          </p>
          <dl className="facts">
            {Object.entries(best.parameters).map(([name, parameter]) => (
              <Fact key={name} name={name}>
                <code>{shown(parameter)}</code>
              </Fact>
            ))}
            <Fact name="Trial">
              {best.number}
              {best.job && (
                <>
                  {", "}
                  <Link to="/jobs/$jobId" params={{ jobId: best.job }} className="mono">
                    {best.job}
                  </Link>
                </>
              )}
            </Fact>
          </dl>
        </>
      ) : (
        <p className="muted">None yet.</p>
      )}
      <dl className="facts card-line">
        <Fact name="Trials">
          <Progress sweep={sweep} />
        </Fact>
        <Fact name="Search">
          {sweep.search}, {sweep.parallel} at a time
        </Fact>
        <Fact name="User">{sweep.user}</Fact>
        <Fact name="Created">
          <Time at={sweep.created_at}>{dateTime(sweep.created_at)}</Time>
        </Fact>
        <Fact name={over(sweep) ? "Ran for" : "Runs for"}>{since(sweep.created_at, sweep.ended_at ?? now)}</Fact>
        {sweep.reason && <Fact name="Reason">{sweep.reason}</Fact>}
      </dl>
    </section>
  );
}

function RegisterBest({ job }: { job: string }) {
  const { data } = useQuery(jobQuery(job));
  return data ? <RegisterButton job={job} models={data.models} verb="Register the best …" /> : null;
}
