// The project's running attempts on an engine, and the GPUs that nobody uses.
import { Link } from "@tanstack/react-router";

import type { components } from "../../api/schema";
import { plural, since, value } from "../../ui/format";
import { Table } from "../../ui/Table";
import { useNow } from "../../ui/useNow";
import { idleOf, isIdle } from "./idle";

type Detail = components["schemas"]["EngineDetail"];
const NODES = 4;

export function IdleGpus({ detail }: { detail: Detail }) {
  const now = useNow(detail.attempts.length > 0);
  const { free, held, jobs } = idleOf(detail, now);
  const sum = free.reduce((all, { gpus }) => all + gpus, 0);
  if (!sum && !held) return null;
  const places = free.slice(0, NODES).map(({ node, gpus }) => `${gpus} on ${node}`);
  if (free.length > NODES) places.push(`the rest on ${plural(free.length - NODES, "other node")}`);
  return (
    <div className={held ? "note warn" : "note"} role="status">
      {held > 0 && (
        <p>
          <strong>{plural(held, "GPU is", "GPUs are")} held but idle:</strong> {plural(jobs, "job")} of this project {jobs === 1 ? "has" : "have"}{" "}
          used no CPU or GPU and printed nothing for more than 10 minutes.
        </p>
      )}
      {sum > 0 && (
        <p>
          {plural(sum, "GPU is", "GPUs are")} free: {places.join(", ")}.
        </p>
      )}
    </div>
  );
}

export function Running({ detail }: { detail: Detail }) {
  const { attempts } = detail;
  const now = useNow(attempts.length > 0);
  const others = detail.running - attempts.length;
  if (!attempts.length) {
    return (
      <p className="muted">
        No job of this project runs on it{others > 0 ? `; ${plural(others, "attempt")} of other projects` : ""}.
      </p>
    );
  }
  return (
    <div>
      <h3>Running</h3>
      <Table
        label="Running attempts"
        columns={["Job", "User", "State", { name: "GPUs", right: true }, { name: "CPUs", right: true }, "Nodes", { name: "For", right: true }]}
      >
        {attempts.map((attempt) => (
          <tr key={`${attempt.job} ${attempt.attempt}`}>
            <td className="break">
              <Link to="/jobs/$jobId" params={{ jobId: attempt.job }}>
                {attempt.name}
              </Link>
              {attempt.attempt > 1 && <span className="muted"> attempt {attempt.attempt}</span>}
            </td>
            <td className="break">{attempt.user}</td>
            <td>
              {attempt.state.toLowerCase()}
              {isIdle(attempt.idle_since, now) && attempt.idle_since && (
                <span className="state tone-warn idle">idle for {since(attempt.idle_since, now)}</span>
              )}
            </td>
            <td className="right">{attempt.gpus}</td>
            <td className="right">{value(attempt.cpus)}</td>
            <td className="break">{attempt.nodes.join(", ") || "–"}</td>
            <td className="right nowrap numbers">{since(attempt.since, now)}</td>
          </tr>
        ))}
      </Table>
      {others > 0 && <p className="muted">and {plural(others, "attempt")} of other projects.</p>}
    </div>
  );
}
