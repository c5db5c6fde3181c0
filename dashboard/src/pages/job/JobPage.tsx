import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, Outlet, useLocation } from "@tanstack/react-router";
import { useEffect, useRef } from "react";

import { ApiError } from "../../api/client";
import { jobQuery } from "../../api/queries";
import type { JobDetail } from "../../api/types";
import { OtherProjects } from "../../app/project";
import { Copy } from "../../ui/Copy";
import { Empty } from "../../ui/Empty";
import { ErrorNote } from "../../ui/ErrorNote";
import { Loading } from "../../ui/Loading";
import { StateBadge } from "../../ui/StateBadge";
import { useTitle } from "../../ui/useTitle";
import { Actions } from "./Actions";
import { LiveEvents } from "./live";
import { TABS } from "./tabs";

const route = getRouteApi("/inside/jobs/$jobId");

export function JobPage() {
  const { jobId } = route.useParams();
  const { data: job, error } = useQuery(jobQuery(jobId));
  useTitle(job?.name ?? jobId);
  const tabs = useRef<HTMLElement>(null);
  const path = useLocation({ select: (location) => location.pathname });
  const there = job !== undefined;
  // On a phone not all of them are in sight.
  useEffect(() => {
    tabs.current?.querySelector("[aria-current=page]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [path, there]);

  if (error instanceof ApiError && error.status === 404) {
    return (
      <Empty title="There is no such job" command="weft list">
        <p className="break">
          No job <code>{jobId}</code> in this project. It may have been deleted, or be in another project.
        </p>
        <OtherProjects />
        <Link to="/" className="button">
          To the jobs
        </Link>
      </Empty>
    );
  }
  if (!job) return error ? <ErrorNote error={error} /> : <Loading rows={6} />;
  return (
    <LiveEvents key={jobId} jobId={jobId}>
      <Head job={job} />
      <nav className="tabs" aria-label="The job's pages" ref={tabs}>
        {TABS.map((tab) => (
          <Link
            key={tab.to}
            to={tab.to}
            params={{ jobId }}
            activeOptions={{ exact: tab.to === "/jobs/$jobId", includeSearch: false }}
          >
            {tab.name}
          </Link>
        ))}
      </nav>
      <Outlet />
    </LiveEvents>
  );
}

function Head({ job }: { job: JobDetail }) {
  return (
    <div className="page-head">
      <div className="job-title">
        <h1 className="break">{job.name}</h1>
        <span className="muted mono nowrap">
          {job.id} <Copy text={job.id} what="the job's id" />
        </span>
      </div>
      <StateBadge job={job} />
      <Actions job={job} />
    </div>
  );
}
