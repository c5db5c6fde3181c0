import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useEffect, useMemo, useRef, useState } from "react";

import { json } from "../../api/client";
import { LIVE } from "../../api/queries";
import type { Job, JobPage } from "../../api/types";
import { useKeys } from "../../app/keys";
import { Empty } from "../../ui/Empty";
import { ErrorNote } from "../../ui/ErrorNote";
import { Loading } from "../../ui/Loading";
import { useTitle } from "../../ui/useTitle";
import { Bulk } from "./Bulk";
import { Filters, StateTabs } from "./Filters";
import { JobsTable } from "./JobsTable";
import { isFiltered, jobsParameters, type JobsSearch, NO_FILTER, pinnedParameters } from "./search";

const route = getRouteApi("/inside/");

export function JobsPage() {
  useTitle("Jobs");
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  // Back undoes a filter. Only of what is typed into the search field, no letter is a step of its own.
  const change = (changes: Partial<JobsSearch>) => {
    const replace = Boolean("col" in changes || (changes.q && search.q));
    void navigate({ search: (before) => ({ ...before, ...changes }), replace, resetScroll: false });
  };

  const { data, error, isPending, hasNextPage, fetchNextPage, isFetchingNextPage, isPlaceholderData } =
    useInfiniteQuery({
      queryKey: ["jobs", jobsParameters(search, null)],
      queryFn: ({ pageParam, signal }) =>
        json<JobPage>(`/jobs?${jobsParameters(search, pageParam)}`, "GET", undefined, signal),
      initialPageParam: null as string | null,
      getNextPageParam: (page) => page.next_cursor,
      // Each look reads all pages that were scrolled to: the more, the rarer.
      refetchInterval: (query) => LIVE * Math.max(1, query.state.data?.pages.length ?? 1),
      placeholderData: (before) => before,
    });

  const filtered = isFiltered(search);
  const { data: top } = useQuery({
    queryKey: ["jobs", pinnedParameters(search)],
    queryFn: ({ signal }) => json<JobPage>(`/jobs?${pinnedParameters(search)}`, "GET", undefined, signal),
    refetchInterval: LIVE,
    enabled: !filtered,
    placeholderData: (before) => before,
  });
  const pinned = useMemo(() => (filtered || !top ? [] : top.jobs), [top, filtered]);
  const jobs = useMemo(() => dedupe([...pinned, ...(data?.pages.flatMap((page) => page.jobs) ?? [])]), [data, pinned]);
  const chosen = jobs.filter((job) => selected.has(job.id));
  const toggle = (id: string) =>
    setSelected((before) => {
      const after = new Set(before);
      if (!after.delete(id)) after.add(id);
      return after;
    });
  useListKeys(toggle);

  return (
    <>
      <div className="page-head">
        <h1>Jobs</h1>
        <StateTabs search={search} change={change} />
      </div>
      <Filters search={search} change={change} jobs={jobs} />
      <ErrorNote error={error} />
      {isPending ? (
        !error && <Loading rows={8} />
      ) : jobs.length === 0 ? (
        <div className="card">
          {filtered ? (
            <Empty title="No job fits these filters">
              <button
                type="button"
                className="button"
                onClick={() => change(NO_FILTER)}
              >
                Show all jobs
              </button>
            </Empty>
          ) : (
            <Empty title="No jobs yet" command="weft init && weft train manifest.yml --follow">
              <p>Hand Weft a manifest and a folder of training code; the job shows up here at once.</p>
            </Empty>
          )}
        </div>
      ) : (
        <>
          {chosen.length > 0 && <Bulk jobs={chosen} clear={() => setSelected(new Set())} />}
          <JobsTable
            jobs={jobs.slice(pinned.length)}
            pinned={pinned}
            search={search}
            change={change}
            selected={selected}
            setSelected={setSelected}
            toggle={toggle}
            stale={isPlaceholderData}
          />
          {hasNextPage && <More load={() => void fetchNextPage()} busy={isFetchingNextPage} />}
        </>
      )}
    </>
  );
}

/** A job that moved up while pages were read stands on two of them. */
function dedupe(jobs: Job[]): Job[] {
  return [...new Map(jobs.map((job) => [job.id, job])).values()];
}

/** The next page, when its button comes into sight or is pressed. */
function More({ load, busy }: { load: () => void; busy: boolean }) {
  const button = useRef<HTMLButtonElement>(null);
  const latest = useRef(load);
  useEffect(() => {
    latest.current = load;
  });
  useEffect(() => {
    if (!button.current) return;
    const seen = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) latest.current();
    });
    seen.observe(button.current);
    return () => seen.disconnect();
  }, []);
  return (
    <div className="empty">
      <button ref={button} type="button" className="button" disabled={busy} onClick={load}>
        {busy ? "Loading …" : "More jobs"}
      </button>
    </div>
  );
}

/** j and k go through the rows' links, x selects. */
function useListKeys(toggle: (id: string) => void) {
  const links = () => [...document.querySelectorAll<HTMLAnchorElement>("a[data-job]")];
  const step = (by: number) => {
    const all = links();
    const at = all.findIndex((link) => link === document.activeElement);
    all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + by))]?.focus();
  };
  useKeys({
    j: () => step(1),
    k: () => step(-1),
    x: () => {
      const id = document.activeElement?.getAttribute("data-job");
      if (!id) return false;
      toggle(id);
    },
  });
}
