// Signing in a program that shows a code: `weft login --sso`.
import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { type FormEvent, useId, useState } from "react";

import { ApiError, api, body } from "../../api/client";
import { sessionQuery } from "../../api/queries";
import type { components } from "../../api/schema";
import { ErrorNote } from "../../ui/ErrorNote";
import { Fact } from "../../ui/Fact";
import { Loading } from "../../ui/Loading";
import { useTitle } from "../../ui/useTitle";

type Waiting = components["schemas"]["DeviceView"];

const route = getRouteApi("/inside/device");

export function DevicePage() {
  useTitle("Sign in a program");
  const { code } = route.useSearch();
  return (
    <>
      <div className="page-head">
        <h1>Sign in a program</h1>
      </div>
      {code ? <Waits key={code} code={code} /> : <Enter />}
    </>
  );
}

function Enter() {
  const navigate = route.useNavigate();
  const id = useId();
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const code = String(new FormData(event.currentTarget).get("code") ?? "").trim();
    void navigate({ search: { code } });
  };
  return (
    <form className="card stack narrow" onSubmit={submit}>
      <div className="field">
        <label htmlFor={id}>Code</label>
        <input
          id={id}
          className="input mono"
          name="code"
          autoComplete="off"
          placeholder="BCDF-GHJK"
          maxLength={20}
          required
        />
        <span className="hint">
          <code>weft login --sso</code> shows it in your terminal.
        </span>
      </div>
      <button type="submit" className="button primary">
        Go on
      </button>
    </form>
  );
}

function Waits({ code }: { code: string }) {
  const { data, error } = useQuery({
    queryKey: ["device", code],
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/device/{user_code}", { params: { path: { user_code: code } }, signal })),
    retry: (times, problem) => !(problem instanceof ApiError) && times < 3,
    refetchOnWindowFocus: false,
  });
  const [answered, setAnswered] = useState<"confirmed" | "refused" | null>(null);
  if (answered === "confirmed") return <p role="status">The program is signed in. You can close this page.</p>;
  if (answered === "refused") return <p role="status">The program is not signed in. You can close this page.</p>;
  if (error)
    return (
      <div className="stack">
        <ErrorNote error={error} />
        <Enter />
      </div>
    );
  return data ? <Ask waiting={data} onAnswer={setAnswered} /> : <Loading />;
}

function Ask({ waiting, onAnswer }: { waiting: Waiting; onAnswer: (answer: "confirmed" | "refused") => void }) {
  const { data: session } = useQuery(sessionQuery);
  const [project, setProject] = useState(waiting.project ?? session?.project ?? "");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const id = useId();
  const path = { user_code: waiting.user_code };

  const answer = async (as: "confirmed" | "refused") => {
    setBusy(true);
    setError(null);
    try {
      if (as === "confirmed")
        await api.POST("/api/v1/device/{user_code}/confirm", { params: { path }, body: { project } });
      else await api.POST("/api/v1/device/{user_code}/deny", { params: { path } });
      onAnswer(as);
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return (
    <div className="card stack narrow">
      <p>
        A program wants to be signed in as <b className="break">{session?.user}</b>. Confirm only if your terminal shows
        this code, and if you have started it yourself. Whoever holds the code gets your rights in the project.
      </p>
      <p className="mono device-code">{waiting.user_code}</p>
      <dl className="facts">
        <Fact name="Program">{waiting.client || "not named"}</Fact>
        <Fact name="Address">{waiting.address}</Fact>
      </dl>
      <div className="field">
        <label htmlFor={id}>Project</label>
        <select id={id} className="input" value={project} onChange={(event) => setProject(event.target.value)}>
          {!session?.projects.some((own) => own.name === project) && <option>{project}</option>}
          {session?.projects.map((own) => (
            <option key={own.name}>{own.name}</option>
          ))}
        </select>
      </div>
      <ErrorNote error={error} />
      <div className="actions">
        <button type="button" className="button primary" disabled={busy} onClick={() => void answer("confirmed")}>
          Sign it in
        </button>
        <button type="button" className="button danger" disabled={busy} onClick={() => void answer("refused")}>
          Refuse
        </button>
      </div>
    </div>
  );
}
