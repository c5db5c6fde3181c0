// A new job: a manifest that is checked while it is written, and the code's folder or zip.
import "../../styles/submit.css";

import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useEffect, useId, useMemo, useRef, useState } from "react";

import { ApiError, call, json } from "../../api/client";
import { jobQuery, manifestQuery, sessionQuery } from "../../api/queries";
import type { components } from "../../api/schema";
import type { FieldProblem, JobDetail } from "../../api/types";
import { Confirm } from "../../ui/Dialog";
import { Empty } from "../../ui/Empty";
import { ErrorNote } from "../../ui/ErrorNote";
import { Loading } from "../../ui/Loading";
import { ManifestEditor } from "../../ui/ManifestEditor";
import { toast } from "../../ui/toast";
import { useDebounced } from "../../ui/useDebounced";
import { useTitle } from "../../ui/useTitle";
import { Code, type Chosen } from "./Code";
import { Changes } from "./Changes";
import { type Schema, suggestions } from "./complete";
import { Outlook } from "./Outlook";
import { type Canonical, Resolved } from "./Resolved";
import { send, type Progress } from "./send";
import { TEMPLATES } from "./templates";

type Valid = components["schemas"]["ValidManifest"];
const route = getRouteApi("/inside/submit");

const TEMPLATE = `name: my-training
learners: 1
cpus: 1
memory: 2 GiB
framework:
  name: pytorch
  command: python train.py
`;

export function SubmitPage() {
  useTitle("Submit");
  const { from } = route.useSearch();
  const { data: session } = useQuery(sessionQuery);
  const { data: job, error: noJob } = useQuery({ ...jobQuery(from ?? ""), enabled: Boolean(from) });
  const { data: text, error: noText } = useQuery({ ...manifestQuery(from ?? ""), enabled: Boolean(from) });
  if (session?.role === "viewer") {
    return (
      <div className="card">
        <Empty title="Viewers submit no jobs">
          <p>
            You are a viewer of project {session.project}; an owner of it or an administrator can make you an editor.
          </p>
          <Link to="/" className="button">
            To the jobs
          </Link>
        </Empty>
      </div>
    );
  }
  if (!from) return <Form key="new" first={TEMPLATE} job={undefined} />;
  if (noJob ?? noText) return <ErrorNote error={noJob ?? noText} />;
  return job && text !== undefined ? <Form key={from} first={text} job={job} /> : <Loading rows={6} />;
}

/** What the server says of a manifest: what it means, or what is wrong with it. */
async function validate(
  text: string,
  job: string | undefined,
  signal: AbortSignal,
): Promise<Valid | { problems: readonly FieldProblem[] }> {
  const query = job ? `?rerun_of=${encodeURIComponent(job)}` : "";
  try {
    const sent = { method: "POST", body: text, headers: { "Content-Type": "text/yaml" }, signal };
    return (await (await call(`/api/v1/manifests:validate${query}`, sent)).json()) as Valid;
  } catch (error) {
    if (error instanceof ApiError && error.code === "invalid_manifest") {
      const whole = { path: "", message: error.message, line: null, column: null, found: null, accepted: null };
      return { problems: error.problems.length ? error.problems : [whole] };
    }
    throw error;
  }
}

const NONE: readonly FieldProblem[] = [];
/** Milliseconds. What is missing (a secret, a container) may be made on another page meanwhile. */
const AGAIN = 5000;

function Form({ first, job }: { first: string; job: JobDetail | undefined }) {
  const [text, setText] = useState(first);
  const [code, setCode] = useState<Chosen | null>(null);
  const [step, setStep] = useState<Progress | null>(null);
  const [submitted, setSubmitted] = useState(false);
  const [fromCheckpoint, setFromCheckpoint] = useState(false);
  const [refused, setRefused] = useState<{ text: string; error: unknown } | null>(null);
  const navigate = route.useNavigate();
  const queries = useQueryClient();
  const field = useRef<HTMLTextAreaElement>(null);
  const problemsId = useId();

  const settled = useDebounced(text, 350);
  const {
    data: checked,
    error,
    isPlaceholderData: checking,
  } = useQuery({
    queryKey: ["validate", settled, job?.id],
    queryFn: ({ signal }) => validate(settled, job?.id, signal),
    placeholderData: keepPreviousData,
    staleTime: AGAIN,
    refetchInterval: ({ state }) => (state.data && "problems" in state.data ? AGAIN : false),
  });
  const wrong = checked && "problems" in checked ? checked.problems : NONE;
  const canonical = checked && !("problems" in checked) ? (checked.manifest as Canonical) : undefined;
  // What only submitting has found out holds for that text.
  const later = refused?.text === text && refused.error instanceof ApiError ? refused.error.problems : NONE;
  const problems = useMemo(() => {
    const known = new Set(wrong.map((problem) => `${problem.path} ${problem.message}`));
    return [...wrong, ...later.filter((problem) => !known.has(`${problem.path} ${problem.message}`))];
  }, [wrong, later]);
  const marks = useMemo(
    () => new Map(problems.flatMap((problem) => (problem.line ? [[problem.line, problem.message] as const] : []))),
    [problems],
  );

  const { data: schema } = useQuery({
    queryKey: ["manifest schema"],
    queryFn: ({ signal }) => json<Schema>("/schema/manifest", "GET", undefined, signal),
    staleTime: Infinity,
  });
  const suggest = schema && ((typed: string, cursor: number) => suggestions(schema, typed, cursor));

  const submit = async () => {
    setRefused(null);
    try {
      const made = await send({ manifest: text, code, rerunOf: job?.id, fromCheckpoint }, setStep);
      setSubmitted(true); // nothing would be lost, also while the job's page is still being loaded
      toast(`Submitted as ${made.id}`);
      await queries.invalidateQueries({ queryKey: ["jobs"] });
      await navigate({ to: "/jobs/$jobId", params: { jobId: made.id } });
    } catch (problem) {
      setRefused({ text, error: problem });
      setStep(null);
    }
  };
  useLeaveWarning(!submitted && (text !== first || code !== null || step !== null));

  const take = (chosen: Chosen | null, manifest: string | null) => {
    setCode(chosen);
    if (manifest !== null && (text === first || text.trim() === "")) setText(manifest);
  };
  const goTo = (line: number) => {
    const area = field.current;
    if (!area) return;
    const lines = text.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
    area.focus();
    area.setSelectionRange(start, start + (lines[line - 1]?.length ?? 0));
  };

  return (
    <>
      <div className="page-head">
        <h1 className="break">{job ? `Rerun ${job.name}` : "Submit a job"}</h1>
      </div>
      <div className="submit">
        <div className="stack">
          <section className="card" aria-labelledby="code">
            <h2 id="code">Code</h2>
            <Code chosen={code} take={take} known={job?.code_sha256 ?? null} busy={step !== null} />
          </section>
          <section className="card flush" aria-labelledby="manifest">
            <div className="card-title row spread">
              <h2 id="manifest">Manifest</h2>
              {!job && <Templates current={text} known={first} take={setText} />}
            </div>
            <ManifestEditor
              ref={field}
              value={text}
              onChange={setText}
              marks={marks}
              label="Manifest, in YAML"
              describedBy={problems.length ? problemsId : undefined}
              {...(suggest && { suggest })}
            />
            <div className="card-foot" id={problemsId} role="status">
              {problems.length ? (
                <Problems problems={problems} goTo={goTo} />
              ) : error ? (
                <ErrorNote error={error} />
              ) : checked && !checking ? (
                <p className="good">The manifest is valid.</p>
              ) : (
                <p className="muted">Checking …</p>
              )}
            </div>
          </section>
        </div>
        <div className="stack submit-side">
          <section className="card stack submit-card" aria-label="Submit">
            {!code && !job?.code_sha256 && (
              <p className="muted">Without code: the command has to bring what it runs.</p>
            )}
            {job && (
              <label className="check">
                <input
                  type="checkbox"
                  checked={fromCheckpoint}
                  onChange={(event) => setFromCheckpoint(event.target.checked)}
                />
                Begin with the job&apos;s last complete checkpoint
              </label>
            )}
            {step && (
              <div role="status">
                <p>{step.words}</p>
                <progress value={step.share} max={1} aria-label={step.words} />
              </div>
            )}
            {canonical?.engine && canonical.resources && (
              <Outlook
                engine={canonical.engine}
                learners={canonical.elastic?.min ?? canonical.learners ?? 1}
                each={canonical.resources}
              />
            )}
            <button
              type="button"
              className="button primary"
              disabled={step !== null || wrong.length > 0 || !checked || text !== settled}
              onClick={() => void submit()}
            >
              {step ? "Submitting …" : job ? "Rerun" : "Submit"}
            </button>
          </section>
          {refused && !later.length && <ErrorNote error={refused.error} />}
          {checked && !("problems" in checked) && (
            <>
              {job && <Changes before={job.manifest} after={checked.manifest} />}
              <Resolved checked={checked} />
            </>
          )}
        </div>
      </div>
    </>
  );
}

function Problems({ problems, goTo }: { problems: readonly FieldProblem[]; goTo: (line: number) => void }) {
  return (
    <ul className="problems">
      {problems.map((problem, at) => (
        <li key={at}>
          {problem.line ? (
            <button type="button" className="button quiet small" onClick={() => goTo(problem.line ?? 1)}>
              line {problem.line}
            </button>
          ) : null}
          <span className="break">
            {problem.path && <code>{problem.path}</code>} {problem.message}
            {problem.accepted && !problem.message.includes(problem.accepted) ? <>; accepted: {problem.accepted}</> : null}
          </span>
        </li>
      ))}
    </ul>
  );
}

/** The manifests of the examples, to begin with. */
function Templates({ current, known, take }: { current: string; known: string; take: (text: string) => void }) {
  const [taken, setTaken] = useState(known);
  const [asked, setAsked] = useState<string | null>(null);
  const load = async (name: string) => {
    const template = TEMPLATES.find((template) => template.name === name);
    if (!template) return;
    const text = await template.load();
    setTaken(text);
    take(text);
  };
  return (
    <>
      <select
        className="input"
        aria-label="Begin with an example"
        value=""
        onChange={(event) => {
          const name = event.target.value;
          if (current === taken || current.trim() === "") void load(name);
          else setAsked(name);
        }}
      >
        <option value="">Begin with an example …</option>
        {TEMPLATES.map(({ name }) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
      {asked !== null && (
        <Confirm title={`Begin with ${asked}?`} verb="Replace" action={() => load(asked)} onClose={() => setAsked(null)}>
          <p>The manifest that you have written is replaced.</p>
        </Confirm>
      )}
    </>
  );
}

/** The browser asks before a tab with something written in it is closed. */
function useLeaveWarning(unsaved: boolean) {
  useEffect(() => {
    if (!unsaved) return;
    const ask = (event: BeforeUnloadEvent) => event.preventDefault();
    window.addEventListener("beforeunload", ask);
    return () => window.removeEventListener("beforeunload", ask);
  }, [unsaved]);
}
