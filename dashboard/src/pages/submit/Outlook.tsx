import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { api, body } from "../../api/client";
import { plural } from "../../ui/format";
import { outlook, type Outlook as Found, type Wanted } from "./fits";

const AGAIN = 10_000; // ms

/** Whether the job would start now, by the load of its engine. */
export function Outlook({ engine, wanted }: { engine: string; wanted: Wanted }) {
  const { data } = useQuery({
    queryKey: ["engine", engine],
    queryFn: ({ signal }) => body(api.GET("/api/v1/engines/{name}", { params: { path: { name: engine } }, signal })),
    refetchInterval: AGAIN,
  });
  if (!data) return null;
  const found = outlook(data, wanted);
  return (
    <p className={`outlook outlook-${found.kind}`} role="status">
      {words(found)} <Link to="/cluster" className="link">Cluster</Link>
    </p>
  );
}

function words(found: Found): string {
  const behind = (jobs: number) => (jobs ? ` ${plural(jobs, "job waits", "jobs wait")} already.` : "");
  switch (found.kind) {
    case "fits":
      return `Fits now: there is room for ${plural(found.learners, "learner")}.${behind(found.behind)}`;
    case "waits":
      return `Would wait: there is room for ${found.fitting} of ${plural(found.learners, "learner")} now.${behind(found.behind)}`;
    case "never":
      return `Would wait for other nodes: at most ${found.most} of ${plural(found.learners, "learner")} fit, even when nothing else runs.`;
    case "unknown":
      return `Whether the job would start now is not known: ${found.why}.`;
  }
}
