// Small parts that every page uses.
import { type ReactNode, useEffect, useId, useRef, useState } from "react";

import { ApiError, AwayError } from "../api/client";
import { ended, type Job } from "../api/types";
import { dateTime } from "./format";

const TONES: Record<string, string> = {
  QUEUED: "wait",
  PENDING: "wait",
  DOWNLOADING: "busy",
  PROCESSING: "busy",
  STORING: "busy",
  COMPLETED: "good",
  FAILED: "bad",
  HALTED: "warn",
};
export const tone = (state: string) => TONES[state] ?? "idle";

/** A state in its colour, and in words. */
export function StateBadge({ job }: { job: Pick<Job, "state" | "desired"> }) {
  const leaving = !ended(job) && job.desired !== "RUNNING";
  return (
    <span className={`state tone-${tone(job.state)}${ended(job) ? "" : " live"}`}>
      {job.state}
      {leaving ? ` → ${job.desired.toLowerCase()}` : ""}
    </span>
  );
}

export function Time({ at, children }: { at: string; children: ReactNode }) {
  return (
    <time dateTime={at} title={dateTime(at)} className="nowrap">
      {children}
    </time>
  );
}

/** What went wrong, as the API says it: each problem with its place. */
export function ErrorNote({ error }: { error: unknown }) {
  if (!error) return null;
  const problems = error instanceof ApiError ? error.problems : [];
  const title = error instanceof ApiError ? error.title : error instanceof AwayError ? "Trying again" : "Failed";
  return (
    <div className="note bad" role="alert">
      <strong>{title}</strong>
      {problems.length ? (
        <ul>
          {problems.map((one, index) => (
            <li key={index}>
              {one.path && <code>{one.path}</code>}
              {one.line ? ` (line ${one.line})` : ""} {one.message}
              {one.found ? <>; found {one.found}</> : null}
              {one.accepted ? <>; accepted: {one.accepted}</> : null}
            </li>
          ))}
        </ul>
      ) : (
        <p>{error instanceof Error ? error.message : String(error)}</p>
      )}
    </div>
  );
}

export function Empty({ title, children, command }: { title: string; children?: ReactNode; command?: string }) {
  return (
    <div className="empty">
      <h2>{title}</h2>
      {children}
      {command && <Command text={command} />}
    </div>
  );
}

/** A command line to copy. */
export function Command({ text }: { text: string }) {
  return (
    <span className="command">
      <code>{text}</code>
      <Copy text={text} what="the command" />
    </span>
  );
}

export function Copy({ text, what }: { text: string; what: string }) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = window.setTimeout(() => setDone(false), 1500);
    return () => window.clearTimeout(timer);
  }, [done]);
  return (
    <button
      type="button"
      className="button quiet small"
      aria-label={done ? `Copied ${what}` : `Copy ${what}`}
      onClick={() => void copyText(text).then(() => setDone(true))}
    >
      {done ? "copied" : "copy"}
    </button>
  );
}

/** The clipboard is only there on https and localhost; elsewhere the old way. */
export async function copyText(text: string) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

export function Loading({ rows = 4 }: { rows?: number }) {
  return (
    <div className="stack" role="status" aria-label="Loading">
      {Array.from({ length: rows }, (_, row) => (
        <div key={row} className="skeleton" />
      ))}
    </div>
  );
}

/** A modal dialog: the browser's own, which keeps the focus inside and closes by Escape. */
export function Dialog({
  title,
  onClose,
  wide = false,
  children,
}: {
  title: string;
  onClose: () => void;
  wide?: boolean;
  children: ReactNode;
}) {
  const element = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog ref={element} className={wide ? "dialog wide" : "dialog"} aria-labelledby={heading} onCancel={onClose}>
      <div className="stack">
        <h2 id={heading}>{title}</h2>
        {children}
      </div>
    </dialog>
  );
}

/** Ask before something is done that can't be taken back. `action` resolves when it is done; its error is shown. */
export function Confirm({
  title,
  children,
  verb,
  danger = false,
  action,
  onClose,
}: {
  title: string;
  children?: ReactNode;
  verb: string;
  danger?: boolean;
  action: () => Promise<unknown>;
  onClose: () => void;
}) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const run = async () => {
    setBusy(true);
    setError(null);
    try {
      await action();
      onClose();
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} onClose={onClose}>
      {children}
      <ErrorNote error={error} />
      <div className="actions">
        <button type="button" className="button" onClick={onClose}>
          Cancel
        </button>
        <button
          type="button"
          className={danger ? "button primary danger" : "button primary"}
          disabled={busy}
          onClick={() => void run()}
        >
          {busy ? `${verb} …` : verb}
        </button>
      </div>
    </Dialog>
  );
}

/** The browser's title. */
export function useTitle(title: string) {
  useEffect(() => {
    document.title = `${title} · Weft`;
  }, [title]);
}

/** `value`, once it has not changed for `ms`. */
export function useDebounced<T>(value: T, ms: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = window.setTimeout(() => setSettled(value), ms);
    return () => window.clearTimeout(timer);
  }, [value, ms]);
  return settled;
}

/** The time in ms, renewed each second while `on`: for spans that go on. */
export function useNow(on = true): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!on) return;
    const timer = window.setInterval(() => setNow(Date.now()), 1000);
    return () => window.clearInterval(timer);
  }, [on]);
  return now;
}
