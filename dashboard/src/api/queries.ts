// What pages ask for, under one key each.
import { queryOptions } from "@tanstack/react-query";

import { ApiError, api, body, call, json } from "./client";
import { ended, type Session } from "./types";

export const LIVE = 3000; // ms between looks at what changes

export const sessionQuery = queryOptions({
  queryKey: ["session"],
  queryFn: async ({ signal }): Promise<Session | null> => {
    try {
      return await json<Session>("/session", "GET", undefined, signal);
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) return null;
      throw error;
    }
  },
  staleTime: Infinity,
});

export const signInQuery = queryOptions({
  queryKey: ["signin"],
  queryFn: ({ signal }) => body(api.GET("/api/v1/signin", { signal })),
  staleTime: Infinity,
});

export const jobQuery = (id: string) =>
  queryOptions({
    queryKey: ["job", id],
    queryFn: ({ signal }) => body(api.GET("/api/v1/jobs/{job_id}", { params: { path: { job_id: id } }, signal })),
    refetchInterval: ({ state }) => (state.data && ended(state.data) ? false : LIVE),
  });

export const checkpointsQuery = (id: string) =>
  queryOptions({
    queryKey: ["checkpoints", id],
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/jobs/{job_id}/checkpoints", { params: { path: { job_id: id } }, signal })),
  });

export const profilesQuery = (id: string) =>
  queryOptions({
    queryKey: ["profiles", id],
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/jobs/{job_id}/profiles", { params: { path: { job_id: id } }, signal })),
  });

export const filesQuery = (id: string) =>
  queryOptions({
    queryKey: ["files", id],
    queryFn: ({ signal }) => body(api.GET("/api/v1/jobs/{job_id}/files", { params: { path: { job_id: id } }, signal })),
  });

/** The manifest as a user would write it, in YAML. */
export const manifestQuery = (id: string) =>
  queryOptions({
    queryKey: ["manifest", id],
    queryFn: async ({ signal }) => (await call(`/api/v1/jobs/${encodeURIComponent(id)}/manifest`, { signal })).text(),
    staleTime: Infinity,
  });
