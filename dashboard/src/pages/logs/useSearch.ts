// Searching a log: hits come page by page, as the API reads a bounded part at a time.
import { useInfiniteQuery } from "@tanstack/react-query";
import { useEffect, useMemo } from "react";

import { json } from "../../api/client";
import type { SearchPage } from "../../api/types";
import type { LogFilter } from "./LogWindow";

export interface Sought extends LogFilter {
  q: string;
  regex: boolean;
  case: boolean;
}

export interface Hit {
  n: number;
  spans: readonly (readonly number[])[];
}

/** Hits that are looked for without being asked to go on. */
const ENOUGH = 1000;

export function useSearch(jobId: string, sought: Sought) {
  const query = useInfiniteQuery({
    queryKey: ["log search", jobId, sought],
    enabled: sought.q !== "",
    queryFn: ({ pageParam, signal }) => {
      const params = new URLSearchParams({ q: sought.q, from: String(pageParam), limit: "500" });
      if (sought.regex) params.set("regex", "true");
      if (sought.case) params.set("case", "true");
      if (sought.learner) params.set("learner", String(sought.learner));
      if (sought.attempt) params.set("attempt", String(sought.attempt));
      return json<SearchPage>(`/jobs/${encodeURIComponent(jobId)}/logs/search?${params}`, "GET", undefined, signal);
    },
    initialPageParam: 0,
    getNextPageParam: (page) => (page.end ? undefined : page.next),
    staleTime: Infinity,
  });
  const { data, hasNextPage, isFetching, isError, fetchNextPage } = query;
  const hits = useMemo<Hit[]>(
    () => data?.pages.flatMap((page) => page.matches.map((match) => ({ n: match.line.n, spans: match.spans }))) ?? [],
    [data],
  );
  const spans = useMemo(() => new Map(hits.map((hit) => [hit.n, hit.spans])), [hits]);
  useEffect(() => {
    if (hasNextPage && !isFetching && !isError && hits.length < ENOUGH) void fetchNextPage();
  }, [hasNextPage, isFetching, isError, fetchNextPage, hits.length]);
  return {
    hits,
    spans,
    searching: isFetching,
    more: hasNextPage,
    searchOn: () => void fetchNextPage(),
    again: () => void query.refetch(),
    error: query.error,
  };
}
