// The engines, their resources in use, and the jobs that wait for them.
import "../../styles/cluster.css";

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { api, body } from "../../api/client";
import { LIVE } from "../../api/queries";
import type { components } from "../../api/schema";
import { Empty } from "../../ui/Empty";
import { ErrorNote } from "../../ui/ErrorNote";
import { ago, plural, since, size, value } from "../../ui/format";
import { Loading } from "../../ui/Loading";
import { Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { useNow } from "../../ui/useNow";
import { useTitle } from "../../ui/useTitle";
import { IdleGpus, Running } from "./Running";
import { Usage } from "./Usage";

type Engine = components["schemas"]["EngineView"];
type Detail = components["schemas"]["EngineDetail"];
type Amounts = components["schemas"]["Amounts"];
type Waiting = components["schemas"]["WaitingJob"];

export function ClusterPage() {
  useTitle("Cluster");
  const { data, error } = useQuery({
    queryKey: ["engines"],
    queryFn: ({ signal }) => body(api.GET("/api/v1/engines", { signal })),
    refetchInterval: LIVE,
  });
  return (
    <>
      <div className="page-head">
        <h1>Cluster</h1>
      </div>
      <ErrorNote error={error} />
      {!data ? (
        !error && <Loading rows={6} />
      ) : data.engines.length === 0 ? (
        <div className="card">
          <Empty title="No engines">
            <p>The installation&apos;s settings name none: jobs have nowhere to run.</p>
          </Empty>
        </div>
      ) : (
        <div className="stack">
          {data.engines.map((engine) => (
            <EngineCard key={engine.name} engine={engine} />
          ))}
          <Usage />
        </div>
      )}
    </>
  );
}

const HEALTH: Record<Engine["health"], string> = { up: "good", unreachable: "bad", unseen: "warn" };

function EngineCard({ engine }: { engine: Engine }) {
  const { data, error } = useQuery({
    queryKey: ["engines", engine.name],
    queryFn: ({ signal }) => body(api.GET("/api/v1/engines/{name}", { params: { path: { name: engine.name } }, signal })),
    refetchInterval: LIVE,
  });
  return (
    <section className="card engine" aria-labelledby={`engine-${engine.name}`}>
      <div className="row engine-head">
        <h2 id={`engine-${engine.name}`} className="break">
          {engine.name}
        </h2>
        <span className={`state tone-${HEALTH[engine.health]}`}>{engine.health}</span>
        <span className="chip">{engine.type}</span>
        {engine.default && <span className="chip">default</span>}
        {engine.seen_at && (
          <span className="muted">
            seen <Time at={engine.seen_at}>{ago(engine.seen_at)}</Time>
          </span>
        )}
        <span className="muted end">
          {plural(engine.running, "running attempt")}, {plural(engine.queued, "queued job")}
        </span>
      </div>
      {engine.condition && (
        <div className="note warn" role="status">
          <p>{engine.condition}</p>
        </div>
      )}
      {engine.exposed && (
        <div className="note warn" role="status">
          <p>Jobs are not kept apart: {engine.exposed}.</p>
        </div>
      )}
      {engine.queue && <p className="muted">Admission is left to {engine.queue}.</p>}
      {engine.capacity ? (
        <div className="bars">
          <Bar name="CPUs" engine={engine} of="cpus" show={(cpus) => value(Math.round(cpus * 100) / 100)} />
          <Bar name="GPUs" engine={engine} of="gpus" show={String} />
          <Bar name="Memory" engine={engine} of="memory" show={size} />
        </div>
      ) : (
        <p className="muted">No worker has looked at it yet.</p>
      )}
      <ErrorNote error={error} />
      {data && <IdleGpus detail={data} />}
      {data && <Running detail={data} />}
      {data && <Queue detail={data} />}
      {data && <Nodes detail={data} />}
    </section>
  );
}

/** How much of a resource is held by Weft's jobs, is used by others, and is left. */
function Bar({
  name,
  engine,
  of,
  show,
}: {
  name: string;
  engine: Pick<Engine, "capacity" | "used" | "busy">;
  of: keyof Amounts;
  show: (amount: number) => string;
}) {
  const all = engine.capacity?.[of] ?? 0;
  const used = engine.used[of] ?? 0;
  const others = engine.busy?.[of] ?? 0;
  if (!all) return of === "gpus" ? null : <p className="muted">{name}: none</p>;
  const share = (amount: number) => `${Math.min(100, (100 * amount) / all)}%`;
  const words = `${show(used)} of ${show(all)} held by jobs${others ? `, ${show(others)} used by others` : ""}`;
  return (
    <div className="bar-row">
      <span className="muted">{name}</span>
      <div className="bar" aria-hidden="true">
        <span className="bar-used" style={{ width: share(used) }} />
        <span className="bar-others" style={{ width: share(others) }} />
      </div>
      <span className="numbers">{words}</span>
    </div>
  );
}

function Queue({ detail }: { detail: Detail }) {
  const now = useNow(detail.waiting.length > 0);
  const others = detail.waiting_of_others;
  if (!detail.waiting.length) {
    return (
      <p className="muted">
        No job of this project waits for it{others ? `; ${plural(others, "job")} of other projects in the queue` : ""}.
      </p>
    );
  }
  return (
    <div>
      <h3>Waiting</h3>
      <Table
        label="Waiting jobs"
        columns={[
          { name: "Place", right: true },
          "Job",
          "Asks for",
          { name: "Priority", right: true },
          "For",
          "Why it waits",
        ]}
      >
        {detail.waiting.map((job) => (
          <tr key={job.id}>
            <td className="right">{job.place ?? job.state.toLowerCase()}</td>
            <td className="break">
              <Link to="/jobs/$jobId" params={{ jobId: job.id }}>
                {job.name}
              </Link>
            </td>
            <td>{asks(job)}</td>
            <td className="right">{job.priority}</td>
            <td className="nowrap numbers">{since(job.state_since, now)}</td>
            <td className="break">
              {job.reason}
              {job.condition && <p className="muted">{job.condition}</p>}
            </td>
          </tr>
        ))}
      </Table>
      {others > 0 && <p className="muted">and {plural(others, "job")} of other projects.</p>}
    </div>
  );
}

function asks({ learners, resources }: Waiting): string {
  const gpus = resources.gpus ? `${plural(resources.gpus, resources.gpu_type ?? "GPU")}, ` : "";
  return `${learners} × (${gpus}${plural(resources.cpus, "CPU")}, ${size(resources.memory)})`;
}

function Nodes({ detail }: { detail: Detail }) {
  if (!detail.nodes.length) return null;
  return (
    <details open={detail.nodes.length <= 8}>
      <summary>
        {plural(detail.nodes.length, "node")}: {detail.node_counts.ready} ready
        {detail.node_counts.not_ready ? `, ${detail.node_counts.not_ready} not ready` : ""}
        {detail.node_counts.potential ? `, ${detail.node_counts.potential} potential` : ""}
      </summary>
      <Table
        label="Nodes"
        columns={[
          "Node",
          "State",
          { name: "CPUs held", right: true },
          { name: "GPUs held", right: true },
          { name: "Memory held", right: true },
          "GPU type",
        ]}
      >
        {detail.nodes.map((node) => (
          <tr key={node.name}>
            <td className="break">{node.name}</td>
            <td>
              {node.excluded ? "excluded" : node.state}
              {node.blames > 0 && <div className="muted">blamed by {plural(node.blames, "job")}</div>}
            </td>
            <td className="right">
              {value(node.used.cpus)} of {value(node.capacity.cpus)}
            </td>
            <td className="right">
              {node.used.gpus} of {node.capacity.gpus}
            </td>
            <td className="right nowrap">
              {size(node.used.memory ?? 0)} of {size(node.capacity.memory ?? 0)}
            </td>
            <td>{node.gpu_type ?? "–"}</td>
          </tr>
        ))}
      </Table>
    </details>
  );
}
