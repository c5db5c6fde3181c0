import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";

import { api, body } from "../../api/client";
import { LIVE } from "../../api/queries";
import type { components } from "../../api/schema";

export type Schedule = components["schemas"]["ScheduleView"];
export type Start = components["schemas"]["StartView"];

export const schedulesQuery = infiniteQueryOptions({
  queryKey: ["schedules"],
  queryFn: ({ pageParam, signal }) =>
    body(api.GET("/api/v1/schedules", { params: { query: { limit: 50, cursor: pageParam } }, signal })),
  initialPageParam: null as string | null,
  getNextPageParam: (page) => page.next_cursor ?? null,
  refetchInterval: (query) => LIVE * Math.max(1, query.state.data?.pages.length ?? 1),
});

export const scheduleQuery = (id: string) =>
  queryOptions({
    queryKey: ["schedule", id],
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/schedules/{schedule_id}", { params: { path: { schedule_id: id } }, signal })),
    refetchInterval: LIVE,
  });

export const startsQuery = (id: string) =>
  infiniteQueryOptions({
    queryKey: ["schedule", id, "starts"],
    queryFn: ({ pageParam, signal }) =>
      body(
        api.GET("/api/v1/schedules/{schedule_id}/starts", {
          params: { path: { schedule_id: id }, query: { limit: 50, cursor: pageParam } },
          signal,
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor ?? null,
    refetchInterval: (query) => LIVE * Math.max(1, query.state.data?.pages.length ?? 1),
  });
