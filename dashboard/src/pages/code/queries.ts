import { queryOptions } from "@tanstack/react-query";

import { api, body } from "../../api/client";

/** The files of a job's code. */
export const codeQuery = (id: string, enabled: boolean) =>
  queryOptions({
    queryKey: ["code", id],
    queryFn: ({ signal }) => body(api.GET("/api/v1/jobs/{job_id}/code", { params: { path: { job_id: id } }, signal })),
    staleTime: Infinity,
    enabled,
  });
