// Where a job's program spends its time: the profiles that were recorded of it.
import "../../styles/profiles.css";

import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { lazy, Suspense, useMemo, useState } from "react";

import { call } from "../../api/client";
import { code } from "../../api/code";
import { jobQuery, profilesQuery } from "../../api/queries";
import type { JobDetail, Profile, ProfileFile } from "../../api/types";
import { useRights } from "../../app/rights";
import { Empty } from "../../ui/Empty";
import { ErrorNote } from "../../ui/ErrorNote";
import { dateTime, size } from "../../ui/format";
import { Loading } from "../../ui/Loading";
import { Table } from "../../ui/Table";
import { useTitle } from "../../ui/useTitle";
import { Collectives } from "./Collectives";
import { Recorder } from "./Recorder";
import { hottest, threads } from "./stacks";

const route = getRouteApi("/inside/jobs/$jobId/profiles");
const FlameGraph = lazy(code(async () => ({ default: (await import("./FlameGraph")).FlameGraph })));
const HOT = 12;

export function ProfilesTab() {
  const { jobId } = route.useParams();
  const search = route.useSearch();
  const { data: job } = useQuery(jobQuery(jobId));
  const { data, error, isPending } = useQuery(profilesQuery(jobId));
  const { edit } = useRights();
  useTitle(`${job?.name ?? jobId}: profiles`);
  if (isPending) return <Loading rows={6} />;
  if (error) return <ErrorNote error={error} />;
  const profile = data.profiles.find(({ id }) => id === search.profile) ?? data.profiles[0];
  return (
    <div className="stack">
      {edit && job?.state === "PROCESSING" && <Recorder job={job} />}
      {profile ? <Shown key={profile.id} job={jobId} profiles={data.profiles} profile={profile} /> : <None job={job} />}
    </div>
  );
}

function None({ job }: { job: JobDetail | undefined }) {
  return (
    <div className="card">
      <Empty title="No profiles" command={`weft profile ${job?.id ?? "JOB"}`}>
        <p>
          A profile shows where a running program spends its time: a trace by PyTorch&apos;s profiler, and the stacks of
          its threads.
        </p>
      </Empty>
    </div>
  );
}

function Shown({ job, profiles, profile }: { job: string; profiles: Profile[]; profile: Profile }) {
  const navigate = route.useNavigate();
  const { file: path } = route.useSearch();
  const stacks = profile.files.filter(({ kind }) => kind === "stacks");
  const file = stacks.find((found) => found.path === path) ?? stacks[0];
  return (
    <section className="card" aria-label="Profile">
      <div className="row spread">
        <label className="row">
          Profile
          <select
            className="input"
            value={profile.id}
            onChange={(event) => void navigate({ search: { profile: event.target.value }, replace: true })}
          >
            {profiles.map(({ id, stored }) => (
              <option key={id} value={id}>
                {dateTime(stored)}
              </option>
            ))}
          </select>
        </label>
        <label className="row">
          Process
          <select
            className="input"
            value={file?.path ?? ""}
            disabled={!file}
            onChange={(event) =>
              void navigate({ search: { profile: profile.id, file: event.target.value }, replace: true })
            }
          >
            {stacks.map((found) => (
              <option key={found.path} value={found.path}>
                learner {found.learner}, {found.process}
              </option>
            ))}
          </select>
        </label>
      </div>
      {file ? <Stacks key={file.path} job={job} file={file} /> : <p className="muted">This profile has no stacks.</p>}
      <Collectives key={profile.id} id={`${job} ${profile.id}`} urls={collectivesOf(job, profile)} />
      <h2 className="profile-files">Files</h2>
      <ul className="plain">
        {profile.files.map((found) => (
          <li key={found.path}>
            <a href={fileUrl(job, found.path)} download={name(found)}>
              {name(found)}
            </a>{" "}
            <span className="muted">{size(found.size)}</span>
          </li>
        ))}
      </ul>
      <p className="profile-note">
        Traces open at{" "}
        <a href="https://ui.perfetto.dev" target="_blank" rel="noreferrer">
          ui.perfetto.dev
        </a>
        , which reads them in the browser.
      </p>
    </section>
  );
}

const MOST_RANKS = 64;

function collectivesOf(job: string, profile: Profile): ReadonlyMap<number, string> {
  const files = profile.files.filter(({ kind, process }) => kind === "collectives" && process.startsWith("rank-"));
  return new Map(files.slice(0, MOST_RANKS).map(({ process, path }) => [Number(process.slice(5)), fileUrl(job, path)]));
}

const fileUrl = (job: string, path: string) =>
  `/api/v1/jobs/${encodeURIComponent(job)}/profiles/${path.split("/").map(encodeURIComponent).join("/")}`;
const name = ({ learner, path }: ProfileFile) => `learner-${learner}-${path.split("/").at(-1) ?? ""}`;

function Stacks({ job, file }: { job: string; file: ProfileFile }) {
  const navigate = route.useNavigate();
  const { thread: at = 0 } = route.useSearch();
  const [find, setFind] = useState("");
  const { data, error } = useQuery({
    queryKey: ["stacks", job, file.path],
    queryFn: async ({ signal }) => (await call(fileUrl(job, file.path), { signal })).text(),
    staleTime: Infinity,
  });
  const found = useMemo(() => (data === undefined ? undefined : threads(data)), [data]);
  if (error) return <ErrorNote error={error} />;
  if (!found) return <Loading rows={6} />;
  const thread = found[at] ?? found[0];
  if (!thread) return <p className="muted">The file has no stacks.</p>;
  return (
    <>
      <div className="row spread profile-controls">
        <label className="row">
          Thread
          <select
            className="input"
            value={found.indexOf(thread)}
            onChange={(event) =>
              void navigate({ search: (before) => ({ ...before, thread: Number(event.target.value) }), replace: true })
            }
          >
            {found.map((choice, number) => (
              <option key={number} value={number}>
                {choice.name}
              </option>
            ))}
          </select>
        </label>
        <input
          className="input"
          type="search"
          data-search
          aria-label="Mark calls"
          placeholder="Mark calls  ( / )"
          value={find}
          onChange={(event) => setFind(event.target.value)}
        />
      </div>
      <Suspense fallback={<Loading rows={6} />}>
        <FlameGraph thread={thread} find={find} />
      </Suspense>
      <Table
        label="Table of calls"
        columns={["Call", { name: "Self", right: true }, { name: "Total", right: true }]}
      >
        {hottest(thread, HOT).map((hot) => (
          <tr key={hot.name}>
            <td className="mono break">{hot.name}</td>
            <td className="right numbers">{share(hot.own)}</td>
            <td className="right numbers">{share(hot.whole)}</td>
          </tr>
        ))}
      </Table>
    </>
  );
}

const share = (of: number) => `${(of * 100).toFixed(1)} %`;
