import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api, body } from "../../api/client";
import type { components } from "../../api/schema";
import { Confirm } from "../../ui/Dialog";
import { ErrorNote } from "../../ui/ErrorNote";
import { plural, size, value } from "../../ui/format";
import { FormDialog } from "../../ui/FormDialog";
import { Loading } from "../../ui/Loading";
import { toast } from "../../ui/toast";

type Quota = components["schemas"]["QuotaView"];
type Share = components["schemas"]["ShareView"];
type Role = components["schemas"]["MemberView"]["role"];
type Asked = { what: "new" } | { what: "member" | "quota" | "share" | "delete"; project: string; quota?: Quota; share?: Share };

const ROLES: readonly Role[] = ["viewer", "editor", "owner"];
const GIB = 2 ** 30;

export function Projects() {
  const [asked, setAsked] = useState<Asked | null>(null);
  const { data, error } = useQuery({
    queryKey: ["projects"],
    queryFn: ({ signal }) => body(api.GET("/api/v1/projects", { signal })),
  });
  return (
    <section className="stack" aria-labelledby="projects">
      <div className="row">
        <h2 id="projects">Projects</h2>
        <button type="button" className="button small" onClick={() => setAsked({ what: "new" })}>
          Add a project …
        </button>
      </div>
      <ErrorNote error={error} />
      {!data ? (
        !error && <Loading />
      ) : (
        data.projects.map((project) => (
          <article key={project.name} className="card stack" aria-label={`Project ${project.name}`}>
            <div className="row">
              <h3 className="break">{project.name}</h3>
              <span className="muted">
                {plural(project.members, "member")}, {project.jobs_estimated && "about "}
                {plural(project.jobs, "job")}
              </span>
              <button
                type="button"
                className="button small quiet danger"
                aria-label={`Delete project ${project.name}`}
                onClick={() => setAsked({ what: "delete", project: project.name })}
              >
                Delete
              </button>
            </div>
            <QuotaLine project={project.name} change={(quota) => setAsked({ what: "quota", project: project.name, quota })} />
            <ShareLine project={project.name} change={(share) => setAsked({ what: "share", project: project.name, share })} />
            <Members project={project.name} add={() => setAsked({ what: "member", project: project.name })} />
          </article>
        ))
      )}
      {asked && <Ask asked={asked} onClose={() => setAsked(null)} />}
    </section>
  );
}

function QuotaLine({ project, change }: { project: string; change: (quota: Quota) => void }) {
  const { data, error } = useQuery({
    queryKey: ["projects", project, "quota"],
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/projects/{name}/quota", { params: { path: { name: project } }, signal })),
  });
  if (!data) return error ? <ErrorNote error={error} /> : <Loading rows={1} />;
  const part = (name: string, used: number, limit: number | null | undefined, show: (amount: number) => string) => (
    <span className="nowrap">
      {name} <strong className="numbers">{show(used)}</strong>
      <span className="muted"> of {limit === null || limit === undefined ? "any number" : show(limit)}</span>
    </span>
  );
  return (
    <div className="row quota">
      {part("CPUs", data.used.cpus, data.cpus, value)}
      {part("GPUs", data.used.gpus, data.gpus, String)}
      {part("Memory", data.used.memory, data.memory, size)}
      {part("Jobs at once", data.used.jobs, data.jobs, String)}
      <button
        type="button"
        className="button small"
        aria-label={`Quota … of ${project}`}
        onClick={() => change(data)}
      >
        Quota …
      </button>
    </div>
  );
}

function ShareLine({ project, change }: { project: string; change: (share: Share) => void }) {
  const { data, error } = useQuery({
    queryKey: ["projects", project, "share"],
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/projects/{name}/share", { params: { path: { name: project } }, signal })),
  });
  if (!data) return error ? <ErrorNote error={error} /> : <Loading rows={1} />;
  const cpus = data.guaranteed?.cpus;
  const gpus = data.guaranteed?.gpus;
  const memory = data.guaranteed?.memory;
  const known = (count: number | null | undefined): count is number => count !== null && count !== undefined;
  const guaranteed = [
    ...(known(cpus) ? [`${value(cpus)} CPUs`] : []),
    ...(known(gpus) ? [`${gpus} GPUs`] : []),
    ...(known(memory) ? [`${size(memory)} of memory`] : []),
  ];
  return (
    <div className="row quota">
      <span className="nowrap">
        Share <strong className="numbers">{Math.round(100 * data.share)}%</strong>
        <span className="muted"> used of late {Math.round(100 * data.used)}%</span>
      </span>
      <span>
        Guaranteed <strong className="numbers">{guaranteed.join(", ") || "nothing"}</strong>
        {!data.borrow && guaranteed.length > 0 && <span className="muted"> and no more</span>}
      </span>
      <button type="button" className="button small" aria-label={`Share … of ${project}`} onClick={() => change(data)}>
        Share …
      </button>
    </div>
  );
}

function Members({ project, add }: { project: string; add: () => void }) {
  const queries = useQueryClient();
  const [failed, setFailed] = useState<unknown>(null);
  const { data, error } = useQuery({
    queryKey: ["projects", project, "members"],
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/projects/{name}/members", { params: { path: { name: project } }, signal })),
  });
  const act = async (action: () => Promise<unknown>) => {
    setFailed(null);
    try {
      await action();
    } catch (problem) {
      setFailed(problem);
    }
    await queries.invalidateQueries({ queryKey: ["projects"] });
    await queries.invalidateQueries({ queryKey: ["users"] });
  };
  const path = (user: string) => ({ params: { path: { name: project, user } } });
  return (
    <div className="stack">
      <ErrorNote error={error ?? failed} />
      <ul className="members">
        {data?.members.map((member) => (
          <li key={member.user} className="row">
            <span className="break">
              {member.user}
              {member.disabled && <span className="muted"> (disabled)</span>}
              {member.by_group && <span className="muted"> (by group)</span>}
            </span>
            <select
              className="input"
              aria-label={`Role of ${member.user} in ${project}`}
              value={member.role}
              onChange={(event) =>
                void act(() =>
                  api.PUT("/api/v1/projects/{name}/members/{user}", {
                    ...path(member.user),
                    body: { role: event.target.value as Role },
                  }),
                )
              }
            >
              {ROLES.map((role) => (
                <option key={role} value={role}>
                  {role}
                </option>
              ))}
            </select>
            <button
              type="button"
              className="button small quiet"
              aria-label={`Remove ${member.user} from ${project}`}
              onClick={() => void act(() => api.DELETE("/api/v1/projects/{name}/members/{user}", path(member.user)))}
            >
              Remove
            </button>
          </li>
        ))}
      </ul>
      <div>
        <button type="button" className="button small" aria-label={`Add a member to ${project}`} onClick={add}>
          Add a member …
        </button>
      </div>
    </div>
  );
}

function Ask({ asked, onClose }: { asked: Asked; onClose: () => void }) {
  const queries = useQueryClient();
  const refresh = async () => {
    await queries.invalidateQueries({ queryKey: ["projects"] });
    await queries.invalidateQueries({ queryKey: ["users"] });
    await queries.invalidateQueries({ queryKey: ["session"] });
  };
  if (asked.what === "new") {
    return (
      <FormDialog
        title="Add a project"
        verb="Add"
        fields={[
          { name: "name", label: "Name", required: true, hint: "Small letters, digits, dots and dashes." },
          { name: "owner", label: "Owner", placeholder: "you" },
        ]}
        submit={async ({ name = "", owner }) => {
          await api.POST("/api/v1/projects", { body: { name, allow_untrusted: false, ...(owner ? { owner } : {}) } });
          toast(`Project ${name} is there`);
          await refresh();
        }}
        onClose={onClose}
      />
    );
  }
  const { project } = asked;
  if (asked.what === "member") {
    return (
      <FormDialog
        title={`A member for ${project}`}
        verb="Add"
        fields={[
          { name: "user", label: "User", required: true },
          { name: "role", label: "Role", type: "select", options: ROLES, first: "editor" },
        ]}
        submit={async ({ user = "", role }) => {
          await api.PUT("/api/v1/projects/{name}/members/{user}", {
            params: { path: { name: project, user } },
            body: { role: role as Role },
          });
          await refresh();
        }}
        onClose={onClose}
      />
    );
  }
  if (asked.what === "quota") {
    const now = asked.quota;
    const first = (limit: number | null | undefined) => (limit === null || limit === undefined ? "" : String(limit));
    const number = (text: string | undefined) => (text ? Number(text) : null);
    return (
      <FormDialog
        title={`Quota of ${project}`}
        verb="Set"
        fields={[
          { name: "cpus", label: "CPUs", type: "number", min: 0, placeholder: "no limit", first: first(now?.cpus) },
          { name: "gpus", label: "GPUs", type: "number", min: 0, placeholder: "no limit", first: first(now?.gpus) },
          {
            name: "memory",
            label: "Memory in GiB",
            type: "number",
            min: 0,
            placeholder: "no limit",
            first: now?.memory === null || now?.memory === undefined ? "" : String(now.memory / GIB),
          },
          { name: "jobs", label: "Jobs at once", type: "number", min: 0, placeholder: "no limit", first: first(now?.jobs) },
        ]}
        submit={async ({ cpus, gpus, memory, jobs }) => {
          await api.PUT("/api/v1/projects/{name}/quota", {
            params: { path: { name: project } },
            body: {
              cpus: number(cpus),
              gpus: number(gpus),
              memory: memory ? Math.round(Number(memory) * GIB) : null,
              jobs: number(jobs),
            },
          });
          await refresh();
        }}
        onClose={onClose}
      >
        <p className="muted">What its running jobs may hold at once, on all engines together. Others wait in the queue.</p>
      </FormDialog>
    );
  }
  if (asked.what === "share") {
    const now = asked.share;
    const first = (limit: number | null | undefined) => (limit === null || limit === undefined ? "" : String(limit));
    const number = (text: string | undefined) => (text ? Number(text) : null);
    const kept = now?.guaranteed?.memory;
    return (
      <FormDialog
        title={`Share of ${project}`}
        verb="Set"
        fields={[
          { name: "weight", label: "Weight", required: true, first: first(now?.weight), hint: "A number, such as 2 or 0.5." },
          { name: "cpus", label: "Guaranteed CPUs", type: "number", min: 0, placeholder: "none", first: first(now?.guaranteed?.cpus) },
          { name: "gpus", label: "Guaranteed GPUs", type: "number", min: 0, placeholder: "none", first: first(now?.guaranteed?.gpus) },
          {
            name: "memory",
            label: "Guaranteed memory in GiB",
            type: "number",
            min: 0,
            placeholder: "none",
            first: kept === null || kept === undefined ? "" : String(kept / GIB),
          },
          { name: "borrow", label: "May hold more", type: "select", options: ["yes", "no"], first: now?.borrow === false ? "no" : "yes" },
        ]}
        submit={async ({ weight, cpus, gpus, memory, borrow }) => {
          await api.PUT("/api/v1/projects/{name}/share", {
            params: { path: { name: project } },
            body: {
              weight: Number(weight),
              guaranteed: {
                cpus: number(cpus),
                gpus: number(gpus),
                memory: memory ? Math.round(Number(memory) * GIB) : null,
              },
              borrow: borrow !== "no",
            },
          });
          await refresh();
        }}
        onClose={onClose}
      >
        <p className="muted">Whose job is next, and what the project can always get back from others.</p>
      </FormDialog>
    );
  }
  return (
    <Confirm
      title={`Delete project ${project}?`}
      verb="Delete"
      danger
      action={async () => {
        await api.DELETE("/api/v1/projects/{name}", { params: { path: { name: project } } });
        await refresh();
      }}
      onClose={onClose}
    >
      <p>It is refused while there is something of its jobs, models or data stores.</p>
    </Confirm>
  );
}
