import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { lazy, Suspense } from "react";

import { code } from "../../api/code";
import { checkpointsQuery, jobQuery } from "../../api/queries";
import { ended, type JobDetail, type Learner } from "../../api/types";
import { useRights } from "../../app/rights";
import { Command } from "../../ui/Copy";
import { ErrorNote } from "../../ui/ErrorNote";
import { Fact } from "../../ui/Fact";
import { ago, dateTime, plural, since, size } from "../../ui/format";
import { Loading } from "../../ui/Loading";
import { headlineOf } from "../../ui/reason";
import { Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { useNow } from "../../ui/useNow";
import { Description, JobNotes, Labels } from "./Editable";
import { EventList } from "./EventList";
import { FailurePanel } from "./FailurePanel";
import { LogTail, UsageCard } from "./Glance";
import { pending, useLive } from "./live";
import { ProgressCard } from "./ProgressCard";
import { Timeline } from "./Timeline";

const route = getRouteApi("/inside/jobs/$jobId");
const RECENT = 8;
const MainCurves = lazy(code(async () => ({ default: (await import("./MainCurves")).MainCurves })));
const FEW_PACKAGES = 4;

export function Overview() {
  const { jobId } = route.useParams();
  const { data: job } = useQuery(jobQuery(jobId));
  const live = useLive();
  const { events } = live;
  const waiting = pending(live) && !job?.removed?.events;
  if (!job) return null;
  return (
    <div className="overview">
      <div className="stack">
        <Why job={job} />
        {job.state === "PROCESSING" && <ProgressCard job={job} />}
        {Object.keys(job.metrics ?? {}).length > 0 && !job.removed?.metrics && (
          <Suspense fallback={<section className="card"><Loading rows={9} /></section>}>
            <MainCurves job={job} />
          </Suspense>
        )}
        {job.state !== "FAILED" && !job.removed?.logs && <LogTail job={job} />}
        <section className="card" aria-labelledby="timeline">
          <h2 id="timeline">Time line</h2>
          {waiting ? <Loading rows={2} /> : <Timeline job={job} events={events} />}
        </section>
        <Learners job={job} />
        <Checkpoints job={job} />
      </div>
      <div className="stack">
        <UsageCard job={job} />
        <Facts job={job} />
        <JobNotes job={job} />
        <section className="card" aria-labelledby="recent">
          <h2 id="recent">Latest events</h2>
          {waiting ? <Loading rows={RECENT} /> : <EventList events={events.slice(-RECENT)} newestFirst short />}
          {events.length > RECENT && (
            <p>
              <Link to="/jobs/$jobId/events" params={{ jobId }}>
                All {events.length} events
              </Link>
            </p>
          )}
        </section>
      </div>
    </div>
  );
}

/** Why it waits, what is wrong with it, how it ended: whatever its state makes one ask. */
function Why({ job }: { job: JobDetail }) {
  const now = useNow(!ended(job));
  const waits = job.state === "QUEUED" || job.state === "PENDING";
  if (job.condition) {
    return (
      <div className="note warn" role="status">
        <strong>Something is in the way</strong>
        <p>{job.condition}</p>
        <p className="muted">{headlineOf(job.reason)}</p>
      </div>
    );
  }
  if (waits) {
    return (
      <div className="note info" role="status">
        <strong>Why it is waiting</strong>
        <p>{headlineOf(job.reason)}</p>
        <p className="muted">
          For {since(job.state_since, now)}
          {job.queue_position ? `, number ${job.queue_position} in the queue of engine ${job.engine}` : ""}.
        </p>
      </div>
    );
  }
  if (job.state === "FAILED") {
    return <FailurePanel job={job} />;
  }
  if (job.state === "COMPLETED" && job.reason === "completed") return null;
  return (
    <div className="note" role="status">
      <p>{headlineOf(job.reason)}</p>
    </div>
  );
}

function Facts({ job }: { job: JobDetail }) {
  const now = useNow(!ended(job));
  const { resources, framework } = job;
  const started = job.started_at;
  return (
    <section className="card" aria-labelledby="facts">
      <h2 id="facts">About</h2>
      <dl className="facts">
        <Description job={job} />
        <Labels job={job} />
        <Fact name="Engine">{job.engine}</Fact>
        <Fact name="Framework">
          {framework.name} {framework.version}
        </Fact>
        {job.packages && (
          <Fact name="Packages">
            <Packages packages={job.packages} />
          </Fact>
        )}
        <Fact name="Command">
          <code>{framework.command}</code>
        </Fact>
        <Fact name="Learners">{job.learners}</Fact>
        <Fact name="Each has">
          {plural(resources.cpus, "CPU")}, {size(resources.memory)}
          {resources.gpus ? `, ${plural(resources.gpus, resources.gpu_type ?? "GPU")}` : ""}
        </Fact>
        <Fact name="Retries">
          {job.retries === 0 ? "none allowed" : `${Math.min(job.failures, job.retries)} of ${job.retries} used`}
        </Fact>
        <Fact name="Priority">{job.priority}</Fact>
        <Fact name="User">{job.user}</Fact>
        <Fact name="Created">
          <Time at={job.created_at}>{dateTime(job.created_at)}</Time>
        </Fact>
        {started && <Fact name={job.ended_at ? "Ran for" : "Runs for"}>{since(started, job.ended_at ?? now)}</Fact>}
        {job.labels["sweep"]?.startsWith("swp-") && (
          <Fact name="Sweep">
            <Link to="/sweeps/$sweepId" params={{ sweepId: job.labels["sweep"] }} className="mono">
              {job.labels["sweep"]}
            </Link>
            {job.labels["trial"] && <>, trial {job.labels["trial"]}</>}
          </Fact>
        )}
        {job.labels["schedule"]?.startsWith("sch-") && (
          <Fact name="Schedule">
            <Link to="/schedules/$scheduleId" params={{ scheduleId: job.labels["schedule"] }} className="mono">
              {job.labels["schedule"]}
            </Link>
          </Fact>
        )}
        {job.after.length > 0 && (
          <Fact name="Starts after">
            {job.after.map((before) => (
              <div key={before.job}>
                <JobLink id={before.job} /> {before.ended_at ? "" : `to have ${before.on}: `}
                {before.state ?? "deleted"}
              </div>
            ))}
          </Fact>
        )}
        {job.awaited_by.length > 0 && (
          <Fact name="Awaited by">
            {job.awaited_by.map((waiting) => (
              <div key={waiting}>
                <JobLink id={waiting} />
              </div>
            ))}
          </Fact>
        )}
        {job.rerun_of && (
          <Fact name="Rerun of">
            <JobLink id={job.rerun_of} />
          </Fact>
        )}
        {job.pretrained_model && <Fact name="Starts from">{job.pretrained_model}</Fact>}
        {job.models.length > 0 && <Fact name="Models">{job.models.join(", ")}</Fact>}
      </dl>
    </section>
  );
}

const JobLink = ({ id }: { id: string }) => (
  <Link to="/jobs/$jobId" params={{ jobId: id }} className="mono">
    {id}
  </Link>
);

/** What the job has besides its image; while that is built, the job that builds it. */
function Packages({ packages }: { packages: NonNullable<JobDetail["packages"]> }) {
  if (!packages.lock) {
    return packages.state === "BUILDING" ? (
      <Link to="/jobs/$jobId" params={{ jobId: packages.build }}>
        being built by {packages.build}
      </Link>
    ) : (
      <>none: {packages.reason}</>
    );
  }
  if (packages.lock.length === 0) return <>the image has all of them</>;
  const names = packages.lock.map((pin) => `${pin.name} ${pin.version}`).join(", ");
  if (packages.lock.length <= FEW_PACKAGES) return <>{names}</>;
  return (
    <details>
      <summary>{plural(packages.lock.length, "package")}</summary>
      {names}
    </details>
  );
}

function Learners({ job }: { job: JobDetail }) {
  const { edit } = useRights();
  const attempt = job.attempts.at(-1);
  if (!attempt || attempt.learners.length === 0) return null;
  return (
    <section className="card flush" aria-labelledby="learners">
      <h2 id="learners" className="card-title">
        Learners of attempt {attempt.n}
      </h2>
      <Table
        label="Table of learners"
        columns={["Learner", "Phase", "Node", "Address", "Exit", { name: "Log and shell", hidden: true }]}
      >
        {attempt.learners.map((learner) => (
          <tr key={learner.learner}>
            <td>{learner.learner}</td>
            <td>{learner.phase}</td>
            <td>{learner.node ?? "–"}</td>
            <td className="mono">{learner.address ?? "–"}</td>
            <td className="break">{exitOf(learner)}</td>
            <td>
              <Link
                to="/jobs/$jobId/logs"
                params={{ jobId: job.id }}
                search={{ learner: learner.learner, attempt: attempt.n }}
              >
                log<span className="visually-hidden"> of learner {learner.learner}</span>
              </Link>
              {edit && learner.phase === "PROCESSING" && (
                <>
                  {" · "}
                  <a href={`/jobs/${job.id}/shell/${learner.learner}`} target="_blank" rel="noreferrer">
                    shell<span className="visually-hidden"> in learner {learner.learner}, in a new tab</span>
                  </a>
                </>
              )}
            </td>
          </tr>
        ))}
      </Table>
      {attempt.round && (
        <p className="card-foot muted">
          Round {attempt.round.n}: {plural(attempt.round.processes, "process", "processes")} of{" "}
          {plural(attempt.round.learners.length, "learner")}; {attempt.round.reason}
        </p>
      )}
    </section>
  );
}

function exitOf(learner: Learner): string {
  if (learner.lost) return `lost: ${learner.lost}`;
  if (learner.exit_code === null) return learner.exit_reason ?? "–";
  const code = `exit code ${learner.exit_code}`;
  if (!learner.exit_reason) return code;
  return learner.exit_reason.includes(code) ? learner.exit_reason : `${code}: ${learner.exit_reason}`;
}

function Checkpoints({ job }: { job: JobDetail }) {
  const { data, error, isPending } = useQuery(checkpointsQuery(job.id));
  const found = data?.checkpoints ?? [];
  return (
    <section className="card flush" aria-labelledby="checkpoints">
      <h2 id="checkpoints" className="card-title">
        Checkpoints
      </h2>
      {error ? (
        <ErrorNote error={error} />
      ) : isPending ? (
        <div className="card-foot">
          <Loading rows={2} />
        </div>
      ) : found.length === 0 ? (
        <p className="card-foot muted">
          None. What the program writes to <code>CHECKPOINT_DIR</code> is kept, and the next attempt begins with it.
        </p>
      ) : (
        <Table
          label="Table of checkpoints"
          columns={[
            "Generation",
            "When",
            "Attempt",
            { name: "Files", right: true },
            { name: "Size", right: true },
          ]}
        >
          {found.map((checkpoint) => (
            <tr key={`${checkpoint.generation}-${checkpoint.learner}`}>
              <td className="mono">{checkpoint.generation}</td>
              <td>
                {checkpoint.at ? (
                  <Time at={checkpoint.at}>{ago(checkpoint.at)}</Time>
                ) : (
                  "–"
                )}
              </td>
              <td>{checkpoint.attempt ?? "–"}</td>
              <td className="right">{checkpoint.files}</td>
              <td className="right">{size(checkpoint.size)}</td>
            </tr>
          ))}
        </Table>
      )}
      <div className="card-foot">
        <Command text={`weft checkpoints ${job.id}`} />
      </div>
    </section>
  );
}
