import { useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useState, useSyncExternalStore } from "react";

import { connection } from "../../api/connection";
import { jobQuery } from "../../api/queries";
import { type StreamState, useStream } from "../../api/stream";
import { ended, type LogLine } from "../../api/types";
import { useKeys } from "../../app/keys";
import { Empty } from "../../ui/Empty";
import { ErrorNote } from "../../ui/ErrorNote";
import { Following } from "../../ui/Following";
import { plural } from "../../ui/format";
import { Loading } from "../../ui/Loading";
import { Removed } from "../../ui/Removed";
import { useTitle } from "../../ui/useTitle";
import { LogBar } from "./LogBar";
import { type GapRow, gapRow, LogWindow, row, type Row } from "./LogWindow";
import type { LogSearch } from "./search";
import { LogView } from "./LogView";
import { MatchList } from "./MatchList";
import { useSetting } from "./settings";
import { useSearch } from "./useSearch";

const route = getRouteApi("/inside/jobs/$jobId/logs");
const FLUSH = 80; // ms in which lines are gathered before they are shown

export function LogsTab() {
  const { jobId } = route.useParams();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { data: job } = useQuery(jobQuery(jobId));
  useTitle(`${job?.name ?? jobId}: logs`);

  const { learner, attempt, line } = search;
  const log = useMemo(() => new LogWindow(jobId, { learner, attempt }), [jobId, learner, attempt]);
  const state = useSyncExternalStore(log.subscribe, log.snapshot);
  const [pinned, setPinned] = useState(line === undefined);
  const [wrap, setWrap] = useSetting("wrap");
  const [times, setTimes] = useSetting("times");

  const [full, setFull] = useState(false);

  const { q = "", regex = false, level } = search;
  const found = useSearch(jobId, { q, regex, case: search.case ?? false, level, learner, attempt }, state.total);
  const onlyMatches = level !== undefined || (q !== "" && search.only === true);

  const change = (changes: Partial<LogSearch>) =>
    void navigate({ search: (before) => ({ ...before, ...changes }), replace: true, resetScroll: false });
  const goTo = (target: number) => {
    setPinned(false);
    change({ line: target });
  };
  const toNeighbours = (target: number) => {
    setPinned(false);
    change({ line: target, only: undefined, level: undefined });
  };
  const toEnd = () => {
    change({ line: undefined, only: undefined, level: undefined });
    if (!state.atEnd) void log.openEnd();
    setPinned(true);
  };

  useEffect(() => {
    if (line === undefined) {
      if (!log.snapshot().loaded) void log.openEnd();
    } else if (!log.has(line)) {
      void log.openAt(line);
    }
  }, [log, line]);

  useEffect(() => connection.onBack(() => log.again(line)), [log, line]);

  const stream = useFollow(jobId, log, state.loaded && state.atEnd && Boolean(job));
  const hitAt = found.hits.findIndex((hit) => hit.line.n === line);
  const step = (by: 1 | -1) => {
    if (!found.hits.length) return;
    let to = hitAt + by;
    if (hitAt < 0) {
      // From where one is: the hit below, or above.
      const here = line ?? (by > 0 ? -1 : Infinity);
      const below = found.hits.findIndex((hit) => hit.line.n > here);
      to = by > 0 ? Math.max(0, below) : (below < 0 ? found.hits.length : below) - 1;
    }
    const hit = found.hits[(to + found.hits.length) % found.hits.length];
    if (hit) goTo(hit.line.n);
  };
  const beginning = () => toNeighbours(0);
  useKeys({
    n: () => step(1),
    N: () => step(-1),
    "g g": beginning,
    G: toEnd,
    f: () => setFull(!full),
    Escape: () => (full ? setFull(false) : false),
  });
  const { more, searching, searchOn } = found;
  const searchOnAtEnd = useCallback(() => {
    if (more && !searching) searchOn();
  }, [more, searching, searchOn]);

  if (!job) return null;
  return (
    <section className={full ? "log full" : "log"} aria-label="Log">
      <LogBar
        job={job}
        log={log}
        search={search}
        change={change}
        goTo={toNeighbours}
        toEnd={toEnd}
        found={found}
        hitAt={hitAt}
        step={step}
        pinned={pinned && state.atEnd && !onlyMatches}
        status={
          <>
            {state.loaded ? plural(state.total, "line") : state.error ? "" : "loading …"} {state.loaded && !ended(job) && <Following stream={stream} />}
          </>
        }
        wrap={wrap}
        setWrap={setWrap}
        times={times}
        setTimes={setTimes}
        full={full}
        setFull={setFull}
      />
      <ErrorNote error={state.error ?? found.error} />
      {onlyMatches ? (
        found.hits.length || found.searching ? (
          <MatchList
            hits={found.hits}
            named={job.learners > 1 && learner === undefined}
            wrap={wrap}
            times={times}
            target={line ?? null}
            goTo={toNeighbours}
            onEnd={searchOnAtEnd}
          />
        ) : (
          <div className="card">
            <Empty title="No line matches">
              <p>{level ? "A line has the level that its program writes into it, such as ERROR or WARNING." : "Another text may."}</p>
            </Empty>
          </div>
        )
      ) : state.loaded && state.rows.length === 0 ? (
        <div className="card">
          {job.removed?.logs ? (
            <Removed what="logs" at={job.removed.logs} />
          ) : (
            <Empty title={state.total ? "No lines of this learner and attempt" : "No lines yet"}>
              <p>
                {ended(job)
                  ? "The job has ended without any."
                  : "What the program prints shows up here as soon as it is printed."}
              </p>
            </Empty>
          )}
        </div>
      ) : state.loaded ? (
        <LogView
          key={`${learner ?? ""}/${attempt ?? ""}`}
          log={log}
          state={state}
          named={job.learners > 1 && learner === undefined}
          target={line ?? null}
          spans={found.spans}
          pinned={pinned}
          setPinned={setPinned}
          wrap={wrap}
          times={times}
          goTo={goTo}
        />
      ) : (
        !state.error && <Loading rows={10} />
      )}
    </section>
  );
}

/** Appends what comes while the window is at the log's end. */
function useFollow(jobId: string, log: LogWindow, wanted: boolean): StreamState {
  const queries = useQueryClient();
  const buffer = useMemo(() => new Buffer(log), [log]);
  useEffect(() => () => buffer.stop(), [buffer]);
  const address = (last: string | null) => {
    const query = new URLSearchParams({ from: String(last === null ? log.snapshot().next : Number(last) + 1) });
    if (log.filter.learner) query.set("learner", String(log.filter.learner));
    if (log.filter.attempt) query.set("attempt", String(log.filter.attempt));
    return `/api/v1/jobs/${encodeURIComponent(jobId)}/logs/follow?${query}`;
  };
  const key = `${jobId}/${log.filter.learner}/${log.filter.attempt}`;
  return useStream(wanted ? address : null, key, {
    line: (data) => buffer.add(row(data as LogLine)),
    gap: (data) => buffer.add(gapRow(data as GapRow["gap"])),
    state: () => void queries.invalidateQueries({ queryKey: ["job", jobId] }),
    end: () => void queries.invalidateQueries({ queryKey: ["job", jobId] }),
  });
}

/** Lines arrive one by one, and are shown some times a second. */
class Buffer {
  private rows: Row[] = [];
  private timer = 0;
  private readonly log: LogWindow;

  constructor(log: LogWindow) {
    this.log = log;
  }

  add(row: Row) {
    this.rows.push(row);
    this.timer ||= window.setTimeout(() => this.flush(), FLUSH);
  }

  private flush() {
    this.timer = 0;
    const rows = this.rows;
    this.rows = [];
    this.log.append(rows);
  }

  stop() {
    window.clearTimeout(this.timer);
    this.timer = 0;
    this.rows = [];
  }
}
