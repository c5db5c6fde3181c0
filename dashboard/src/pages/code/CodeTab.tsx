import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";

import { api, body } from "../../api/client";
import { jobQuery, manifestQuery } from "../../api/queries";
import { Copy } from "../../ui/Copy";
import { ErrorNote } from "../../ui/ErrorNote";
import { Code, languageOf } from "../../ui/highlight";
import { Loading } from "../../ui/Loading";
import { useTitle } from "../../ui/useTitle";
import { FileItem } from "../files/FileItem";
import { codeUrl, loadPreview } from "../files/preview";
import { PreviewBody } from "../files/PreviewBody";
import { sourceOf } from "./source";

const route = getRouteApi("/inside/jobs/$jobId/code");
const MANIFEST = "manifest.yml";

export function CodeTab() {
  const { jobId } = route.useParams();
  const { path } = route.useSearch();
  const { data: job } = useQuery(jobQuery(jobId));
  useTitle(`${job?.name ?? jobId}: code`);
  const manifest = useQuery(manifestQuery(jobId));
  const code = useQuery({
    queryKey: ["code", jobId],
    queryFn: ({ signal }) => body(api.GET("/api/v1/jobs/{job_id}/code", { params: { path: { job_id: jobId } }, signal })),
    staleTime: Infinity,
    enabled: Boolean(job?.code_sha256),
  });
  if (!job) return null;
  const files = code.data?.files ?? [];
  return (
    <div className="split">
      <section className="card flush" aria-label="Files of the code">
        <ul className="list">
          <li>
            <Link
              to="/jobs/$jobId/code"
              params={{ jobId }}
              search={{}}
              replace
              className="item"
              activeOptions={{ exact: true }}
            >
              <strong>Manifest</strong>
            </Link>
          </li>
          {files.map((file) => (
            <FileItem key={file.path} to="/jobs/$jobId/code" jobId={jobId} file={file} />
          ))}
        </ul>
        <div className="list-head stack">
          {job.code_sha256 === null ? (
            <p className="muted">{sourceOf(job.manifest) ?? "The job was submitted without code."}</p>
          ) : (
            <div className="row">
              <a
                className="button small"
                href={`/api/v1/jobs/${encodeURIComponent(jobId)}/definition`}
                download
              >
                Download the code
              </a>
              <span className="muted mono" title={job.code_sha256}>
                {job.code_sha256.slice(0, 12)}
              </span>
            </div>
          )}
          {code.isLoading && <Loading rows={2} />}
          {code.data && !code.data.complete && <p className="muted">It has more files than are listed here.</p>}
          <ErrorNote error={code.error} />
        </div>
      </section>
      <section className="stack" aria-label={path ?? "The manifest"}>
        {path === undefined ? (
          <>
            <div className="row">
              <h2>Manifest</h2>
              <span className="muted">as Weft understood it, without credentials</span>
              {manifest.data && <Copy text={manifest.data} what="the manifest" />}
            </div>
            <ErrorNote error={manifest.error} />
            {manifest.data !== undefined ? (
              <Code text={manifest.data} language={languageOf(MANIFEST)} />
            ) : (
              !manifest.error && <Loading />
            )}
          </>
        ) : (
          <Shown key={path} jobId={jobId} path={path} />
        )}
      </section>
    </div>
  );
}

function Shown({ jobId, path }: { jobId: string; path: string }) {
  const { data, error } = useQuery({
    queryKey: ["code file", jobId, path],
    queryFn: ({ signal }) => loadPreview(codeUrl(jobId, path), signal),
    staleTime: Infinity,
  });
  return (
    <>
      <h2 className="break">{path}</h2>
      <ErrorNote error={error} />
      {data ? <PreviewBody preview={data} name={path} /> : !error && <Loading />}
    </>
  );
}
