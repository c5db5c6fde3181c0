// A model: its versions, where each came from, and which stage is at which.
import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";

import { ApiError, api, body } from "../../api/client";
import type { components } from "../../api/schema";
import { OtherProjects } from "../../app/project";
import { useRights } from "../../app/rights";
import { Command } from "../../ui/Copy";
import { Confirm } from "../../ui/Dialog";
import { Empty } from "../../ui/Empty";
import { ErrorNote } from "../../ui/ErrorNote";
import { Fact } from "../../ui/Fact";
import { ago, dateTime, plural, size, span, value } from "../../ui/format";
import { Loading } from "../../ui/Loading";
import { Notes } from "../../ui/Notes";
import { Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { toast } from "../../ui/toast";
import { useTitle } from "../../ui/useTitle";
import { sourceOf } from "../code/source";
import type { Told } from "./lineage";
import { Promote } from "./Register";
import { judged, mainMetrics } from "./summary";
import { TwoVersions, versionQuery } from "./TwoVersions";

type Version = components["schemas"]["VersionView"];
type Model = components["schemas"]["ModelDetail"];
type Asked = { what: "promote" | "delete"; version: Version } | { what: "demote"; stage: string } | { what: "model" };

const route = getRouteApi("/inside/models/$name");
const COLUMNS = 2; // of metrics

export function ModelPage() {
  const { name } = route.useParams();
  const { version: chosen, with: other } = route.useSearch();
  useTitle(name);
  const { edit } = useRights();
  const [asked, setAsked] = useState<Asked | null>(null);
  const { data: model, error } = useQuery({
    queryKey: ["model", name],
    queryFn: ({ signal }) => body(api.GET("/api/v1/models/{name}", { params: { path: { name } }, signal })),
  });
  const versions = useInfiniteQuery({
    queryKey: ["model", name, "versions"],
    queryFn: ({ pageParam, signal }) =>
      body(
        api.GET("/api/v1/models/{name}/versions", {
          params: { path: { name }, query: pageParam ? { cursor: pageParam } : {} },
          signal,
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor,
  });
  const all = versions.data?.pages.flatMap((page) => page.versions) ?? [];
  if (error instanceof ApiError && error.status === 404) {
    return (
      <Empty title="There is no such model" command="weft models list">
        <OtherProjects />
        <Link to="/models" className="button">
          To the models
        </Link>
      </Empty>
    );
  }
  if (!model) return error ? <ErrorNote error={error} /> : <Loading rows={6} />;
  const shown = chosen ?? model.latest;
  return (
    <>
      <div className="page-head">
        <h1 className="break">{name}</h1>
        {Object.entries(model.stages).map(([stage, version]) => (
          <span key={stage} className="chip">
            {stage} @{version}
            {edit && (
              <button
                type="button"
                className="sort"
                aria-label={`Take stage ${stage} away`}
                onClick={() => setAsked({ what: "demote", stage })}
              >
                ×
              </button>
            )}
          </span>
        ))}
        {edit && (
          <div className="actions">
            <button type="button" className="button danger" onClick={() => setAsked({ what: "model" })}>
              Delete
            </button>
          </div>
        )}
      </div>
      <div className="stack">
        <ErrorNote error={versions.error} />
        <Versions model={name} all={all} edit={edit} ask={setAsked} />
        {versions.hasNextPage && (
          <button type="button" className="button" onClick={() => void versions.fetchNextPage()}>
            More versions
          </button>
        )}
        {chosen !== undefined && other !== undefined && (
          <TwoVersions name={name} versions={[Math.min(chosen, other), Math.max(chosen, other)]} />
        )}
        <div className="overview">
          {shown !== null && <Lineage name={name} version={shown} />}
          <div className="stack">
            {shown !== null && <VersionNotes key={shown} name={name} version={shown} edit={edit} />}
            <History model={model} />
          </div>
        </div>
      </div>
      {asked && <Ask name={name} asked={asked} onClose={() => setAsked(null)} />}
    </>
  );
}

function Versions({
  model,
  all,
  edit,
  ask,
}: {
  model: string;
  all: readonly Version[];
  edit: boolean;
  ask: (asked: Asked) => void;
}) {
  const { version: chosen, with: other } = route.useSearch();
  const navigate = route.useNavigate();
  const metrics = mainMetrics(all, COLUMNS);
  const ticked = [chosen, other].filter((version) => version !== undefined);
  // A third one takes the place of the second.
  const tick = (version: number) => {
    const left = ticked.filter((before) => before !== version);
    const next = left.length < ticked.length ? left : [...left.slice(0, 1), version];
    void navigate({ search: { version: next[0], with: next[1] }, replace: true, resetScroll: false });
  };
  return (
    <section className="card flush" aria-labelledby="versions">
      <h2 id="versions" className="card-title">
        Versions
      </h2>
      <Table
        label="Table of versions"
        columns={[
          { name: "Compare", hidden: true },
          "Version",
          "Stages",
          "Job",
          ...metrics.map((name) => ({ name, right: true as const })),
          "Notes",
          "Files",
          "Made",
          { name: "Do", hidden: true },
        ]}
      >
        {all.map((version) => (
          <tr key={version.version}>
            <td>
              <input
                type="checkbox"
                aria-label={`Compare version ${version.version}`}
                title="Choose two to see them side by side"
                checked={ticked.includes(version.version)}
                onChange={() => tick(version.version)}
              />
            </td>
            <td>
              <Link to="/models/$name" params={{ name: model }} search={{ version: version.version }} replace>
                {version.version}
              </Link>
            </td>
            <td>{version.stages.join(", ") || <span className="muted">–</span>}</td>
            <td>
              <Link to="/jobs/$jobId" params={{ jobId: version.job }} className="clip" title={version.job}>
                {version.job_name || version.job}
              </Link>
            </td>
            {metrics.map((name) => (
              <td key={name} className="right">
                {value(judged(version.metrics, name))}
              </td>
            ))}
            <td>
              <span className="clip muted" title={version.notes || version.description}>
                {version.notes || version.description || "–"}
              </span>
            </td>
            <td className="nowrap">
              {version.files ? `${plural(version.files.files, "file")}, ${size(version.files.bytes)}` : "–"}
            </td>
            <td>
              <Time at={version.created_at}>{ago(version.created_at)}</Time>
            </td>
            <td>
              <span className="row keep">
                <a
                  className="button small"
                  href={`/api/v1/models/${encodeURIComponent(model)}/versions/${version.version}/download`}
                  aria-label={`Download version ${version.version}`}
                  download
                >
                  Download
                </a>
                {edit && (
                  <>
                    <button
                      type="button"
                      className="button small"
                      aria-label={`Promote version ${version.version}`}
                      onClick={() => ask({ what: "promote", version })}
                    >
                      Promote …
                    </button>
                    <button
                      type="button"
                      className="button small quiet danger"
                      aria-label={`Delete version ${version.version}`}
                      onClick={() => ask({ what: "delete", version })}
                    >
                      Delete
                    </button>
                  </>
                )}
              </span>
            </td>
          </tr>
        ))}
      </Table>
    </section>
  );
}

function Lineage({ name, version }: { name: string; version: number }) {
  const { data, error } = useQuery(versionQuery(name, version));
  if (!data) return error ? <ErrorNote error={error} /> : <Loading />;
  const told = data.lineage as Told;
  const metrics = Object.entries(told.metrics ?? {});
  const files = (part: { files: number; bytes: number }) => `${plural(part.files, "file")}, ${size(part.bytes)}`;
  return (
    <section className="card" aria-labelledby="lineage">
      <h2 id="lineage">Where version {version} comes from</h2>
      <dl className="facts">
        <Fact name="Job">
          <Link to="/jobs/$jobId" params={{ jobId: data.job }}>
            {told.job?.name ?? data.job}
          </Link>
        </Fact>
        {data.description && (
          <Fact name="Description">
            <span className="own-text">{data.description}</span>
          </Fact>
        )}
        <Fact name="By">{data.user}</Fact>
        <Fact name="Made">{dateTime(data.created_at)}</Fact>
        {told.run && (
          <Fact name="Run">
            {plural(told.run.learners, "learner")} on {told.run.engine}, {span(told.run.seconds)}
          </Fact>
        )}
        {data.parent && <Fact name="Starts from">{data.parent}</Fact>}
        {data.children.length > 0 && <Fact name="Went into">{data.children.join(", ")}</Fact>}
        {told.image && (
          <Fact name="Image">
            {told.image.reference} <span className="muted mono">{told.image.digest.slice(0, 19)}</span>
          </Fact>
        )}
        {told.repo && <Fact name="Code">{sourceOf({ repo: told.repo })}</Fact>}
        {told.code_sha256 && (
          <Fact name="Code">
            <code>{told.code_sha256.slice(0, 12)}</code>
          </Fact>
        )}
        {told.data && <Fact name="Data">{files(told.data)}</Fact>}
        {data.files && <Fact name="Files">{files(data.files)}</Fact>}
        {data.place && (
          <Fact name="Place">
            <code>{data.place}</code>
          </Fact>
        )}
        {metrics.map(([metric, summary]) => (
          <Fact key={metric} name={metric}>
            {typeof summary === "number" ? value(summary) : value(summary.last)}
          </Fact>
        ))}
      </dl>
      <p className="card-line">
        <Command text={`weft models download ${data.reference}`} />
      </p>
    </section>
  );
}

function VersionNotes({ name, version, edit }: { name: string; version: number; edit: boolean }) {
  const queries = useQueryClient();
  const { data } = useQuery(versionQuery(name, version));
  if (!data) return null;
  const save = async (notes: string) => {
    const path = { name, version: String(version) };
    await api.PATCH("/api/v1/models/{name}/versions/{version}", { params: { path }, body: { notes } });
    await queries.invalidateQueries({ queryKey: ["model", name] });
  };
  const empty = `What you found out about version ${version}, for everybody in the project.`;
  return <Notes text={data.notes} empty={empty} edit={edit} save={save} />;
}

function History({ model }: { model: Model }) {
  if (!model.promotions.length) return null;
  return (
    <section className="card" aria-labelledby="history">
      <h2 id="history">Promotions</h2>
      <ul className="events">
        {model.promotions.map((promotion) => (
          <li key={`${promotion.at}${promotion.stage}`}>
            <Time at={promotion.at}>{ago(promotion.at)}</Time>
            <span className="break">
              {promotion.stage} {promotion.version === null ? "taken away" : `→ ${promotion.version}`} by {promotion.user}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Ask({ name, asked, onClose }: { name: string; asked: Asked; onClose: () => void }) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const look = async () => {
    await queries.invalidateQueries({ queryKey: ["model", name] });
    await queries.invalidateQueries({ queryKey: ["models"] });
  };
  if (asked.what === "promote") return <Promote version={asked.version.reference} refresh={look} onClose={onClose} />;
  if (asked.what === "demote") {
    const { stage } = asked;
    const demote = async () => {
      await api.DELETE("/api/v1/models/{name}/stages/{stage}", { params: { path: { name, stage } } });
      await look();
    };
    return (
      <Confirm title={`Take ${stage} away from ${name}?`} verb="Take away" action={demote} onClose={onClose}>
        <p>No version will have this stage. Who asks for {`${name}@${stage}`} gets an error then.</p>
      </Confirm>
    );
  }
  if (asked.what === "delete") {
    const { version, reference } = asked.version;
    const remove = async () => {
      await api.DELETE("/api/v1/models/{name}/versions/{version}", {
        params: { path: { name, version: String(version) } },
      });
      toast(`${reference} is deleted`);
      await look();
    };
    return (
      <Confirm title={`Delete ${reference}?`} verb="Delete" danger action={remove} onClose={onClose}>
        <p>Its number is not given again. Objects in a data store of yours stay there.</p>
      </Confirm>
    );
  }
  const removeAll = async () => {
    await api.DELETE("/api/v1/models/{name}", { params: { path: { name } } });
    await queries.invalidateQueries({ queryKey: ["models"] });
    await navigate({ to: "/models", search: {} });
  };
  return (
    <Confirm title={`Delete ${name}?`} verb="Delete" danger action={removeAll} onClose={onClose}>
      <p>All of its versions go with it. It is refused while a stage is at one of them.</p>
    </Confirm>
  );
}
