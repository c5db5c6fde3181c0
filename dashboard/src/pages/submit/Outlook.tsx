import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { api, body } from "../../api/client";
import { plural } from "../../ui/format";
import { outlook, type Outlook as Found } from "./fits";

const AGAIN = 10_000; // ms

interface Size {
  cpus: number;
  gpus: number;
  memory: number;
  gpu_type?: string | null | undefined;
}

/** Whether the job would start now, by the load of its engine and the room that it has for such learners. */
export function Outlook({ engine, learners, each }: { engine: string; learners: number; each: Size }) {
  const name = { name: engine };
  const { data } = useQuery({
    queryKey: ["engine", engine],
    queryFn: ({ signal }) => body(api.GET("/api/v1/engines/{name}", { params: { path: name }, signal })),
    refetchInterval: AGAIN,
  });
  const size = { cpus: each.cpus, gpus: each.gpus, memory: each.memory, gpu_type: each.gpu_type ?? null };
  const { data: room } = useQuery({
    queryKey: ["room", engine, size],
    queryFn: ({ signal }) => body(api.GET("/api/v1/engines/{name}/room", { params: { path: name, query: size }, signal })),
    refetchInterval: AGAIN,
  });
  if (!data || !room) return null;
  const found = outlook(data, room, learners);
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
