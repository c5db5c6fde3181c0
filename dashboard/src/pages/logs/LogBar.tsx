import { type FormEvent, type ReactNode, useState } from "react";

import type { JobDetail } from "../../api/types";
import { Copy } from "../../ui/Copy";
import { toast } from "../../ui/toast";
import { LEVELS } from "./levels";
import type { LogWindow } from "./LogWindow";
import { readTime } from "./readTime";
import type { LogSearch } from "./search";
import type { useSearch } from "./useSearch";

interface Props {
  job: JobDetail;
  log: LogWindow;
  search: LogSearch;
  change: (changes: Partial<LogSearch>) => void;
  goTo: (line: number) => void;
  toEnd: () => void;
  found: ReturnType<typeof useSearch>;
  hitAt: number;
  step: (by: 1 | -1) => void;
  /** The newest line is kept in sight. */
  pinned: boolean;
  status: ReactNode;
  wrap: boolean;
  setWrap: (on: boolean) => void;
  times: boolean;
  setTimes: (on: boolean) => void;
  /** The log takes the whole window. */
  full: boolean;
  setFull: (on: boolean) => void;
}

const LEVEL_NAMES = { error: "errors", warning: "warnings, errors", info: "info and graver" };

export function LogBar(props: Props) {
  const { job, search, change, toEnd, pinned, status, wrap, setWrap, times, setTimes, full, setFull } = props;
  const number = (text: string) => (text ? Number(text) : undefined);
  const parameters = new URLSearchParams();
  if (search.learner) parameters.set("learner", String(search.learner));
  if (search.attempt) parameters.set("attempt", String(search.attempt));
  return (
    <div className="log-bar">
      <div className="row">
        {job.learners > 1 && (
          <select
            className="input"
            aria-label="Learner"
            value={search.learner ?? ""}
            onChange={(event) => change({ learner: number(event.target.value), line: undefined })}
          >
            <option value="">all {job.learners} learners</option>
            {Array.from({ length: Math.min(job.learners, 1000) }, (_, at) => (
              <option key={at} value={at + 1}>
                learner {at + 1}
              </option>
            ))}
          </select>
        )}
        {job.attempts.length > 1 && (
          <select
            className="input"
            aria-label="Attempt"
            value={search.attempt ?? ""}
            onChange={(event) => change({ attempt: number(event.target.value), line: undefined })}
          >
            <option value="">all {job.attempts.length} attempts</option>
            {job.attempts.map((attempt) => (
              <option key={attempt.n} value={attempt.n}>
                attempt {attempt.n}
              </option>
            ))}
          </select>
        )}
        <select
          className="input"
          aria-label="Level"
          value={search.level ?? ""}
          onChange={(event) => change({ level: LEVELS.find((level) => level === event.target.value), line: undefined })}
        >
          <option value="">all levels</option>
          {LEVELS.map((level) => (
            <option key={level} value={level}>
              {LEVEL_NAMES[level]}
            </option>
          ))}
        </select>
        <SearchForm {...props} />
        <Jump {...props} />
      </div>
      <div className="row">
        <button type="button" className="button small" onClick={() => props.goTo(0)}>
          Beginning
        </button>
        <button type="button" className="button small" aria-pressed={pinned} onClick={toEnd}>
          {pinned ? "At the end" : "To the end"}
        </button>
        <label className="check">
          <input type="checkbox" checked={wrap} onChange={(event) => setWrap(event.target.checked)} />
          Wrap
        </label>
        <label className="check">
          <input type="checkbox" checked={times} onChange={(event) => setTimes(event.target.checked)} />
          Times
        </label>
        <span className="muted numbers" role="status">
          {status}
        </span>
        <span className="actions">
          {search.line !== undefined && <Copy text={window.location.href} what="a link to this line" />}
          <a
            className="button small"
            href={`/api/v1/jobs/${encodeURIComponent(job.id)}/logs/download?${parameters}`}
            download
          >
            Download
          </a>
          <button type="button" className="button small" aria-pressed={full} title="Esc leaves it" onClick={() => setFull(!full)}>
            Full window
          </button>
        </span>
      </div>
    </div>
  );
}

function SearchForm({ search, change, found, hitAt, step }: Props) {
  const [text, setText] = useState<string | null>(null);
  const shown = text ?? search.q ?? "";
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (shown === (search.q ?? "")) {
      step(1);
      return;
    }
    change({ q: shown || undefined });
    setText(null);
  };
  const count = found.hits.length.toLocaleString();
  return (
    <form className="row log-search" role="search" onSubmit={submit}>
      <input
        className="input"
        type="search"
        data-search
        aria-label={search.regex ? "Search by a regular expression" : "Search"}
        placeholder="Search  ( / )"
        value={shown}
        onChange={(event) => {
          setText(event.target.value);
          if (event.target.value === "") change({ q: undefined });
        }}
      />
      <button
        type="button"
        className="button small"
        aria-pressed={search.regex ?? false}
        aria-label="Regular expression"
        title="Regular expression (RE2)"
        onClick={() => change({ regex: search.regex ? undefined : true })}
      >
        .*
      </button>
      <button
        type="button"
        className="button small"
        aria-pressed={search.case ?? false}
        aria-label="Upper and lower case differ"
        title="Upper and lower case differ"
        onClick={() => change({ case: search.case ? undefined : true })}
      >
        Aa
      </button>
      {search.q && (
        <button
          type="button"
          className="button small"
          aria-pressed={search.only ?? false}
          disabled={search.level !== undefined}
          onClick={() => change({ only: search.only ? undefined : true })}
        >
          Only matches
        </button>
      )}
      {(search.q || search.level) && (
        <>
          <button type="button" className="button small" aria-label="Previous hit (N)" onClick={() => step(-1)}>
            ↑
          </button>
          <button type="button" className="button small" aria-label="Next hit (n)" onClick={() => step(1)}>
            ↓
          </button>
          <span className="muted numbers nowrap" role="status">
            {found.hits.length === 0
              ? found.searching
                ? "searching …"
                : "no hits"
              : `${hitAt >= 0 ? `${(hitAt + 1).toLocaleString()} of ` : ""}${count}${found.more ? "+" : ""} hits`}
          </span>
          {(found.searching || found.more) && (
            <progress value={found.share} max={1} aria-label="Part of the log that is searched" title={`${Math.round(found.share * 100)} % of the log is searched`} />
          )}
          {found.more && !found.searching && (
            <button type="button" className="button small" onClick={found.searchOn}>
              Search on
            </button>
          )}
        </>
      )}
    </form>
  );
}

/** To a line by its number, or to a time: 14:03, 14:03:20 (of the job's day), or a whole date. */
function Jump({ job, log, goTo }: Props) {
  const [text, setText] = useState("");
  const jump = async (event: FormEvent) => {
    event.preventDefault();
    const wanted = text.trim();
    if (/^\d+$/.test(wanted)) {
      const { total } = log.snapshot();
      if (Number(wanted) < total) goTo(Number(wanted));
      else toast(`The log has ${total.toLocaleString()} lines, the first of which is number 0`, "bad");
      return;
    }
    const time = readTime(wanted, new Date(job.started_at ?? job.created_at));
    if (!time) {
      toast(`“${wanted}” is no line number and no time; accepted: 1234, 14:03, 14:03:20, 2026-01-31 14:03`, "bad");
      return;
    }
    try {
      const line = await log.lineAt(time.toISOString());
      if (line === null) toast("The log ends before that time", "bad");
      else goTo(line);
    } catch (error) {
      toast((error as Error).message, "bad");
    }
  };
  return (
    <form onSubmit={(event) => void jump(event)}>
      <input
        className="input log-jump"
        aria-label="Go to a line or a time"
        placeholder="Line or 14:03:20"
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
    </form>
  );
}
