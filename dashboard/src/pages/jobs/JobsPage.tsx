import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";

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
  const typed = Boolean(search.q);
  const change = useCallback(
    (changes: Partial<JobsSearch>) => {
      const replace = Boolean("col" in changes || (changes.q && typed));
      void navigate({ search: (before) => ({ ...before, ...changes }), replace, resetScroll: false });
    },
    [navigate, typed],
  );

  const { data, error, isPending, hasNextPage, fetchNextPage, isFetchingNextPage, isFetchNextPageError, isPlaceholderData } =
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
  const toggle = useCallback(
    (id: string) =>
      setSelected((before) => {
        const after = new Set(before);
        if (!after.delete(id)) after.add(id);
        return after;
      }),
    [],
  );
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
          {hasNextPage && <More load={() => void fetchNextPage()} busy={isFetchingNextPage} failed={isFetchNextPageError} />}
        </>
      )}
    </>
  );
}

/** A job that moved up while pages were read stands on two of them. */
function dedupe(jobs: Job[]): Job[] {
  return [...new Map(jobs.map((job) => [job.id, job])).values()];
}

const NEAR = 600; // px below the window

interface MoreProps {
  load: () => void;
  busy: boolean;
  /** The last try got no page: the next one is the user's, or comes when the list is read anew. */
  failed: boolean;
}

/** The next page, when its button comes near the window or is pressed. */
function More({ load, busy, failed }: MoreProps) {
  const button = useRef<HTMLButtonElement>(null);
  const idle = !busy && !failed;
  const latest = useRef(load);
  useEffect(() => {
    latest.current = load;
  });
  // A new observer for each page: one that stays says nothing if one has scrolled to the button again while the page came.
  useEffect(() => {
    if (!idle || !button.current) return;
    const near = (entries: readonly IntersectionObserverEntry[]) => {
      if (entries.some((entry) => entry.isIntersecting)) latest.current();
    };
    const seen = new IntersectionObserver(near, { rootMargin: `0px 0px ${NEAR}px` });
    seen.observe(button.current);
    return () => seen.disconnect();
  }, [idle]);
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
