import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { lazy, Suspense, useState } from "react";

import { code } from "../../api/code";
import { jobQuery, manifestQuery } from "../../api/queries";
import { Copy } from "../../ui/Copy";
import { ErrorNote } from "../../ui/ErrorNote";
import { Code, languageOf } from "../../ui/highlight";
import { Loading } from "../../ui/Loading";
import { useTitle } from "../../ui/useTitle";
import { FileItem } from "../files/FileItem";
import { codeUrl, loadPreview } from "../files/preview";
import { PreviewBody } from "../files/PreviewBody";
import { AnotherJob } from "../jobs/AnotherJob";
import { codeQuery } from "./queries";
import { sourceOf } from "./source";

const route = getRouteApi("/inside/jobs/$jobId/code");
const MANIFEST = "manifest.yml";
const Against = lazy(code(async () => ({ default: (await import("./Against")).Against })));

export function CodeTab() {
  const { jobId } = route.useParams();
  const { path, against } = route.useSearch();
  const navigate = route.useNavigate();
  const [choosing, setChoosing] = useState(false);
  const { data: job } = useQuery(jobQuery(jobId));
  useTitle(`${job?.name ?? jobId}: code`);
  const manifest = useQuery(manifestQuery(jobId));
  const code = useQuery(codeQuery(jobId, Boolean(job?.code_sha256)));
  if (!job) return null;
  if (against !== undefined) {
    return (
      <div className="stack">
        <Suspense fallback={<Loading rows={4} />}>
          <Against job={job} against={against} path={path} />
        </Suspense>
      </div>
    );
  }
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
          <div className="row">
            <button type="button" className="button small" onClick={() => setChoosing(true)}>
              Compare with another job …
            </button>
          </div>
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
      {choosing && (
        <AnotherJob
          not={[jobId]}
          choose={(id) => void navigate({ search: { against: id } })}
          onClose={() => setChoosing(false)}
        />
      )}
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
