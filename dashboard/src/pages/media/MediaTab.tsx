// Images, histograms, tables and texts that a job has logged, each with a slider over its steps.
import "../../styles/media.css";

import { useQueries, useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";

import { call } from "../../api/client";
import { filesQuery, jobQuery } from "../../api/queries";
import { ended, type FileEntry } from "../../api/types";
import { Empty } from "../../ui/Empty";
import { ErrorNote } from "../../ui/ErrorNote";
import { plural, size } from "../../ui/format";
import { Loading } from "../../ui/Loading";
import { Removed } from "../../ui/Removed";
import { useTitle } from "../../ui/useTitle";
import { fileUrl } from "../files/preview";
import { type Item, readEvents } from "./eventFile";
import { LiveEvents } from "./LiveEvents";
import { SeriesCard } from "./SeriesCard";
import { isEventFile, seriesOf } from "./series";

const route = getRouteApi("/inside/jobs/$jobId/media");
const MOST_BYTES = 64 << 20;
const MOST_FILES = 30;

const eventsQuery = (jobId: string, { path, modified }: FileEntry) => ({
  queryKey: ["events-file", jobId, path, modified],
  queryFn: async ({ signal }: { signal: AbortSignal }) => {
    const answer = await call(fileUrl(jobId, path), { signal });
    return readEvents(new Uint8Array(await answer.arrayBuffer()));
  },
  staleTime: Infinity,
  gcTime: 60_000,
  structuralSharing: false,
});

export function MediaTab() {
  const { jobId } = route.useParams();
  const { data: job } = useQuery(jobQuery(jobId));
  const listed = useQuery(filesQuery(jobId));
  useTitle(`${job?.name ?? jobId}: media`);
  const { read, left } = useMemo(() => chosen(listed.data?.files ?? []), [listed.data]);
  const events = useQueries({
    queries: read.map((file) => eventsQuery(jobId, file)),
    combine: (answers) => ({
      error: answers.find((answer) => answer.error)?.error,
      pending: answers.some((answer) => answer.isPending),
      items: answers.map((answer) => answer.data),
    }),
  });
  const [live, setLive] = useState<ReadonlyMap<string, readonly Item[]>>(new Map());
  const running = job && !ended(job);
  const series = useMemo(() => {
    const items = new Map<string, readonly Item[]>(read.map((file, at) => [file.path, events.items[at] ?? []]));
    return seriesOf(listed.data?.files ?? [], new Map([...items, ...live]));
  }, [listed.data, read, events.items, live]);
  if (listed.isPending) return <Loading rows={6} />;
  if (listed.error) return <ErrorNote error={listed.error} />;
  return (
    <div className="stack">
      {running && job.state === "PROCESSING" && <LiveEvents job={job} onRead={setLive} />}
      <ErrorNote error={events.error} />
      {left.length > 0 && (
        <p className="note warn">
          {plural(left.length, "event file is", "event files are")} not read, for there are more than {MOST_FILES} or they have more than{" "}
          {size(MOST_BYTES)}. <code>weft tensorboard {jobId}</code> reads all.
        </p>
      )}
      {series.length > 0 ? (
        <div className="media">
          {series.map((its) => (
            <SeriesCard key={its.name} jobId={jobId} series={its} />
          ))}
        </div>
      ) : events.pending ? (
        <Loading rows={6} />
      ) : job?.removed?.results ? (
        <div className="card">
          <Removed what="results" at={job.removed.results} />
        </div>
      ) : (
        <div className="card">
          <Empty title="No images, histograms or texts">
            <p>
              What TensorBoard&apos;s writers store below <code>RESULT_DIR</code> shows up here
              {running && " when the job has ended, or now by the button above"}, and so do files that are numbered by steps, such as{" "}
              <code>samples/step_100.png</code>. Images of MLflow&apos;s <code>log_image</code> show up at once.
            </p>
            <Link to="/jobs/$jobId/files" params={{ jobId }} className="button">
              To the files
            </Link>
          </Empty>
        </div>
      )}
    </div>
  );
}

/** The event files that are read, and those that are left out. */
function chosen(files: readonly FileEntry[]): { read: FileEntry[]; left: FileEntry[] } {
  const events = files.filter(({ path }) => isEventFile(path));
  const read = events.filter((file) => file.size <= MOST_BYTES).slice(0, MOST_FILES);
  return { read, left: events.filter((file) => !read.includes(file)) };
}
