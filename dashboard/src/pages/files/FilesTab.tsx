import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useState } from "react";

import { filesQuery, jobQuery } from "../../api/queries";
import { ended, type FileEntry } from "../../api/types";
import { Command } from "../../ui/Copy";
import { Empty } from "../../ui/Empty";
import { ErrorNote } from "../../ui/ErrorNote";
import { dateTime, plural, size } from "../../ui/format";
import { Loading } from "../../ui/Loading";
import { Removed } from "../../ui/Removed";
import { useTitle } from "../../ui/useTitle";
import { FileItem } from "./FileItem";
import { Gallery } from "./Gallery";
import { neighbour } from "./links";
import { fileUrl, firstShown, isImage, loadPreview } from "./preview";
import { PreviewBody } from "./PreviewBody";

const route = getRouteApi("/inside/jobs/$jobId/files");
const SHOWN = 300;

export function FilesTab() {
  const { jobId } = route.useParams();
  const { path, view } = route.useSearch();
  const { data: job } = useQuery(jobQuery(jobId));
  const { data, error, isPending } = useQuery(filesQuery(jobId));
  const [text, setText] = useState("");
  const [most, setMost] = useState(SHOWN);
  useTitle(`${job?.name ?? jobId}: files`);
  if (isPending) return <Loading rows={6} />;
  if (error) return <ErrorNote error={error} />;
  const files = data.files;
  if (!files.length) {
    return (
      <div className="card">
        {job?.removed?.results ? (
          <Removed what="results" at={job.removed.results} />
        ) : (
          <Empty title="No files" command={`weft files ${jobId}`}>
            <p>
              {job && ended(job) ? "The job left none. " : "Results come at the job's end. "}
              What the program writes to <code>RESULT_DIR</code> shows up here.
            </p>
          </Empty>
        )}
      </div>
    );
  }
  const found = files.filter((file) => file.path.toLowerCase().includes(text.toLowerCase()));
  const images = found.filter((file) => isImage(file.path));
  const gallery = path === undefined && view === "images";
  const chosen = path === undefined ? firstShown(files) : files.find((file) => file.path === path);
  const total = files.reduce((sum, file) => sum + file.size, 0);
  return (
    <div className="split">
      <section className="card flush" aria-label="Files">
        <div className="list-head stack">
          <input
            className="input"
            type="search"
            data-search
            aria-label="Search in the files' names"
            placeholder="Search  ( / )"
            value={text}
            onChange={(event) => setText(event.target.value)}
          />
          <div className="row">
            <span className="muted" role="status">
              {plural(found.length, "file")}, {size(total)}
              {data.complete ? "" : ", and more that are not listed"}
            </span>
            {job && ended(job) && (
              <a
                className="button small"
                href={`/api/v1/jobs/${encodeURIComponent(jobId)}/trained-model`}
                download
              >
                All as a zip
              </a>
            )}
            {images.length > 1 && (
              <Link
                to="/jobs/$jobId/files"
                params={{ jobId }}
                search={gallery ? {} : { view: "images" }}
                className="button small"
                aria-current={gallery ? "true" : undefined}
              >
                {plural(images.length, "image")}
              </Link>
            )}
          </div>
        </div>
        <ul className="list">
          {found.slice(0, most).map((file) => (
            <FileItem key={file.path} to="/jobs/$jobId/files" jobId={jobId} file={file} shown={!gallery && file === chosen} />
          ))}
        </ul>
        {found.length > most && (
          <button type="button" className="button quiet" onClick={() => setMost(most + 1000)}>
            {(found.length - most).toLocaleString()} more
          </button>
        )}
      </section>
      {gallery ? (
        <Gallery jobId={jobId} images={images} />
      ) : chosen ? (
        <Shown key={chosen.path} jobId={jobId} file={chosen} />
      ) : (
        <div className="card">
          <Empty title="There is no such file any more">
            <Command text={`weft download ${jobId} --trainedmodel`} />
          </Empty>
        </div>
      )}
    </div>
  );
}

function Shown({ jobId, file }: { jobId: string; file: FileEntry }) {
  const url = fileUrl(jobId, file.path);
  const { data, error, isPending } = useQuery({
    queryKey: ["preview", jobId, file.path, file.modified],
    queryFn: ({ signal }) => loadPreview(`${url}?preview=true`, signal),
    staleTime: Infinity,
    gcTime: 60_000,
  });
  const image = (path: string) => {
    const beside = neighbour(file.path, path);
    return beside !== null && isImage(beside) ? `${fileUrl(jobId, beside)}?preview=true` : null;
  };
  return (
    <section className="stack preview" aria-label={`The file ${file.path}`}>
      <div className="row">
        <h2 className="break">{file.path}</h2>
        <span className="muted">
          {size(file.size)}, {dateTime(file.modified)}
        </span>
        <span className="actions">
          <a className="button small" href={url} download={file.path.split("/").at(-1)}>
            Download
          </a>
        </span>
      </div>
      <ErrorNote error={error} />
      {isPending && !error ? <Loading /> : data && <PreviewBody preview={data} name={file.path} image={image} />}
    </section>
  );
}
