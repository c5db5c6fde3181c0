// Searching a log: hits come page by page, as the API reads a bounded part at a time.
import { useInfiniteQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo } from "react";

import { json } from "../../api/client";
import type { LogLine, SearchPage } from "../../api/types";
import { type Level, patternOf, reaches } from "./levels";
import type { LogFilter } from "./LogWindow";

export interface Sought extends LogFilter {
  q: string;
  regex: boolean;
  case: boolean;
  /** Only lines of this level and graver ones. */
  level: Level | undefined;
}

export interface Hit {
  line: LogLine;
  spans: readonly (readonly number[])[];
}

/** Hits that are looked for without being asked to go on. */
const ENOUGH = 1000;
/** Milliseconds between looks at what a log has got since. */
const PAUSE = 2000;

/** `total`: the lines that the log has now. What comes after the search's end is searched, too. */
export function useSearch(jobId: string, sought: Sought, total: number) {
  const { q, level } = sought;
  const query = useInfiniteQuery({
    queryKey: ["log search", jobId, sought],
    enabled: q !== "" || level !== undefined,
    queryFn: ({ pageParam, signal }) => {
      const params = new URLSearchParams({ from: String(pageParam), limit: "500" });
      // A level alone is searched for by its pattern; beside a text, it chooses among what the text finds.
      params.set("q", q || patternOf(level ?? "error"));
      if (q === "" || sought.regex) params.set("regex", "true");
      if (q === "" || sought.case) params.set("case", "true");
      if (sought.learner) params.set("learner", String(sought.learner));
      if (sought.attempt) params.set("attempt", String(sought.attempt));
      return json<SearchPage>(`/jobs/${encodeURIComponent(jobId)}/logs/search?${params}`, "GET", undefined, signal);
    },
    initialPageParam: 0,
    getNextPageParam: (page) => (page.end && page.next >= total ? undefined : page.next),
    staleTime: Infinity,
  });
  const { data, hasNextPage, isFetching, isError, fetchNextPage } = query;
  const hits = useMemo<Hit[]>(() => {
    const all = data?.pages.flatMap((page) => page.matches) ?? [];
    return all
      .filter(({ line }) => !level || reaches(line.text, level))
      .map(({ line, spans }) => ({ line, spans: q ? spans : [] }));
  }, [data, level, q]);
  const spans = useMemo(() => new Map(hits.map((hit) => [hit.line.n, hit.spans])), [hits]);
  const last = data?.pages.at(-1);
  useEffect(() => {
    if (!hasNextPage || isFetching || isError || hits.length >= ENOUGH) return;
    const timer = setTimeout(() => void fetchNextPage(), last?.end ? PAUSE : 0);
    return () => clearTimeout(timer);
  }, [hasNextPage, isFetching, isError, fetchNextPage, hits.length, last]);
  const searchOn = useCallback(() => void fetchNextPage(), [fetchNextPage]);
  return {
    hits,
    spans,
    searching: isFetching && !last?.end,
    /** How much of the log has been searched, 0 to 1. */
    share: last && total ? Math.min(1, last.next / total) : 0,
    more: hasNextPage && !last?.end,
    searchOn,
    error: query.error,
  };
}
