// What charts ask the API for.
import { keepPreviousData, queryOptions } from "@tanstack/react-query";

import { api, body, json } from "../api/client";
import type { components } from "../api/schema";
import { LIVE } from "../api/queries";

type SeriesList = components["schemas"]["SeriesList"];
export type Answer = components["schemas"]["QueryAnswer"];

export type Kind = "user" | "system";

export const seriesQuery = (job: string, kind: Kind, live: boolean) =>
  queryOptions({
    queryKey: ["metrics", job, kind],
    queryFn: ({ signal }): Promise<SeriesList> =>
      body(api.GET("/api/v1/jobs/{job_id}/metrics", { params: { path: { job_id: job }, query: { kind } }, signal })),
    refetchInterval: live ? LIVE : false,
  });

export interface Asked {
  names: readonly string[];
  kind: Kind;
  x: "step" | "time";
  from?: number | undefined;
  to?: number | undefined;
}

export const bucketsQuery = (job: string, asked: Asked, live: boolean, enabled: boolean) =>
  queryOptions({
    queryKey: ["metrics", job, asked.kind, "buckets", asked],
    queryFn: ({ signal }): Promise<Answer> => {
      const params = new URLSearchParams({ kind: asked.kind, x: asked.x, width: "600" });
      asked.names.forEach((name) => params.append("name", name));
      if (asked.from !== undefined) params.set("from", String(asked.from));
      if (asked.to !== undefined) params.set("to", String(asked.to));
      return json<Answer>(`/jobs/${encodeURIComponent(job)}/metrics/query?${params}`, "GET", undefined, signal);
    },
    refetchInterval: live ? LIVE : false,
    enabled,
    // A zoom keeps the lines on the page until the finer ones are there.
    placeholderData: keepPreviousData,
  });
