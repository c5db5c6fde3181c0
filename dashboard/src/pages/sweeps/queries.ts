import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";

import { api, body } from "../../api/client";
import { LIVE } from "../../api/queries";
import { over } from "./trials";

export const sweepsQuery = infiniteQueryOptions({
  queryKey: ["sweeps"],
  queryFn: ({ pageParam, signal }) =>
    body(api.GET("/api/v1/sweeps", { params: { query: { limit: 50, cursor: pageParam } }, signal })),
  initialPageParam: null as string | null,
  getNextPageParam: (page) => page.next_cursor ?? null,
  refetchInterval: (query) => LIVE * Math.max(1, query.state.data?.pages.length ?? 1),
});

export const sweepQuery = (id: string) =>
  queryOptions({
    queryKey: ["sweep", id],
    queryFn: ({ signal }) => body(api.GET("/api/v1/sweeps/{sweep_id}", { params: { path: { sweep_id: id } }, signal })),
    refetchInterval: ({ state }) => (state.data && over(state.data) ? false : LIVE),
  });

/** Trials that are read at once: the API's largest page. */
export const PAGE = 500;

/** The trials in the order of their beginning; further pages are read when they are asked for. */
export const trialsQuery = (id: string, live: boolean) =>
  infiniteQueryOptions({
    queryKey: ["sweep", id, "trials"],
    queryFn: ({ pageParam, signal }) =>
      body(
        api.GET("/api/v1/sweeps/{sweep_id}/trials", {
          params: { path: { sweep_id: id }, query: { limit: PAGE, cursor: pageParam } },
          signal,
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor ?? null,
    refetchInterval: (query) => (live ? LIVE * Math.max(1, query.state.data?.pages.length ?? 1) : false),
  });
