// A job's code beside another job's: the files that differ, and their lines.
import { useQueries, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { jobQuery, manifestQuery } from "../../api/queries";
import type { JobDetail } from "../../api/types";
import { ErrorNote } from "../../ui/ErrorNote";
import { Loading } from "../../ui/Loading";
import { codeUrl, loadPreview, type Preview } from "../files/preview";
import { changedFiles } from "./diff";
import { DiffView } from "./DiffView";
import { codeQuery } from "./queries";

interface Props {
  job: JobDetail;
  /** The id of the job that this one is compared with. */
  against: string;
  path: string | undefined;
}

const SIGNS = { added: "+", removed: "−", changed: "~" };

export function Against({ job, against, path }: Props) {
  const { data: other, error } = useQuery(jobQuery(against));
  const manifests = useQueries({ queries: [manifestQuery(against), manifestQuery(job.id)] });
  const codes = useQueries({
    queries: [codeQuery(against, Boolean(other?.code_sha256)), codeQuery(job.id, Boolean(job.code_sha256))],
  });
  if (!other) return error ? <ErrorNote error={error} /> : <Loading rows={4} />;
  const failed = [...manifests, ...codes].find((query) => query.error)?.error;
  const [before, after] = manifests.map((query) => query.data);
  const same = other.code_sha256 === job.code_sha256;
  const files = same ? [] : changedFiles(codes[0]?.data?.files ?? [], codes[1]?.data?.files ?? []);
  const loading = !same && codes.some((query) => query.isLoading);
  const item = (name: string | undefined) => ({
    to: "/jobs/$jobId/code" as const,
    params: { jobId: job.id },
    search: name === undefined ? { against } : { against, path: name },
    replace: true,
    className: name === path ? "item shown" : "item",
    activeOptions: { exact: true, includeSearch: true },
  });
  const chosen = files.find((file) => file.path === path);
  return (
    <>
      <div className="row">
        <span>
          Changes since{" "}
          <Link to="/jobs/$jobId/code" params={{ jobId: other.id }} search={{}} className="link">
            {other.name}
          </Link>{" "}
          <span className="muted mono">{other.id}</span>
        </span>
        <Link to="/jobs/$jobId/code" params={{ jobId: job.id }} search={{}} className="button small">
          Show the code
        </Link>
        <Link
          to="/jobs/$jobId/code"
          params={{ jobId: other.id }}
          search={{ against: job.id, ...(path === undefined ? {} : { path }) }}
          className="button small"
        >
          The other way round
        </Link>
      </div>
      <ErrorNote error={failed} />
      <div className="split">
        <section className="card flush" aria-label="Files that differ">
          <ul className="list">
            <li>
              <Link {...item(undefined)}>
                <strong>Manifest</strong>
                <span className="muted">{before !== undefined && before === after ? "the same" : ""}</span>
              </Link>
            </li>
            {files.map((file) => (
              <li key={file.path}>
                <Link {...item(file.path)}>
                  <span className="break">{file.path}</span>
                  <span className={`diff-mark diff-mark-${file.kind}`} title={file.kind}>
                    {SIGNS[file.kind]}
                    <span className="visually-hidden">{file.kind}</span>
                  </span>
                </Link>
              </li>
            ))}
          </ul>
          {loading ? (
            <Loading rows={2} />
          ) : (
            files.length === 0 && <p className="card-foot muted">{same ? "The code is the same." : "No file differs."}</p>
          )}
        </section>
        <section className="stack" aria-label={path ?? "The manifest"}>
          <h2 className="break">{path ?? "Manifest"}</h2>
          {path === undefined ? (
            before !== undefined && after !== undefined ? (
              <DiffView before={before} after={after} />
            ) : (
              !failed && <Loading />
            )
          ) : chosen ? (
            <FileDiff
              key={path}
              path={path}
              before={chosen.kind === "added" ? null : other.id}
              after={chosen.kind === "removed" ? null : job.id}
            />
          ) : (
            !loading && <p className="note">This file does not differ.</p>
          )}
        </section>
      </div>
    </>
  );
}

const NOTHING: Preview = { kind: "text", text: "", cut: false };

/** The changes of a file; null stands for a job that does not have it. */
function FileDiff({ path, before, after }: { path: string; before: string | null; after: string | null }) {
  const sides = useQueries({
    queries: [before, after].map((id) => ({
      queryKey: ["code file", id, path],
      queryFn: ({ signal }: { signal: AbortSignal }) => (id === null ? NOTHING : loadPreview(codeUrl(id, path), signal)),
      staleTime: Infinity,
    })),
  });
  const error = sides.find((side) => side.error)?.error;
  const [old, now] = sides.map((side) => side.data);
  if (!old || !now) return error ? <ErrorNote error={error} /> : <Loading />;
  if (old.kind !== "text" || now.kind !== "text") return <p className="note">The file differs, and is not a text.</p>;
  return (
    <>
      {(old.cut || now.cut) && <p className="note warn">Only the beginning of the file is compared.</p>}
      <DiffView before={old.text} after={now.text} />
    </>
  );
}
