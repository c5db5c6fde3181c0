import { useQueryClient } from "@tanstack/react-query";
import { getRouteApi, useRouter } from "@tanstack/react-router";
import { type FormEvent, useId, useState } from "react";

import { json } from "../api/client";
import { sessionQuery } from "../api/queries";
import type { Session } from "../api/types";
import { Away } from "../app/Shell";
import { ErrorNote, useTitle } from "../ui/parts";
import logo from "../weft.svg";

const route = getRouteApi("/signin");

export function SignInPage() {
  useTitle("Sign in");
  const { next } = route.useSearch();
  const router = useRouter();
  const queries = useQueryClient();
  const [byToken, setByToken] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const id = useId();

  const signIn = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const text = (name: string) => String(form.get(name) ?? "").trim();
    setBusy(true);
    setError(null);
    try {
      const sent = byToken ? { token: text("token") } : { user: text("user"), password: String(form.get("password")) };
      const session = await json<Session>("/session", "POST", sent);
      queries.setQueryData(sessionQuery.queryKey, session);
      router.history.push(next ?? "/");
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };

  return (
    <>
      <Away />
      <main className="sign-in">
        <div className="card stack">
          <h1 className="brand">
            <img src={logo} alt="" /> Weft
          </h1>
          {next && <p className="muted">Sign in to go on where you were.</p>}
          <form onSubmit={(event) => void signIn(event)}>
            {byToken ? (
              <div className="field" key="token">
                <label htmlFor={`${id}t`}>Token</label>
                <input
                  id={`${id}t`}
                  className="input mono"
                  name="token"
                  type="password"
                  autoComplete="off"
                  placeholder="weft_u_…"
                  required
                />
                <span className="hint">
                  <code>weft up</code> has put yours into <code>~/.config/weft/config.toml</code>.
                </span>
              </div>
            ) : (
              <>
                <div className="field">
                  <label htmlFor={`${id}u`}>User</label>
                  <input id={`${id}u`} className="input" name="user" autoComplete="username" required />
                </div>
                <div className="field">
                  <label htmlFor={`${id}p`}>Password</label>
                  <input
                    id={`${id}p`}
                    className="input"
                    name="password"
                    type="password"
                    autoComplete="current-password"
                    required
                  />
                </div>
              </>
            )}
            <ErrorNote error={error} />
            <button type="submit" className="button primary" disabled={busy}>
              {busy ? "Signing in …" : "Sign in"}
            </button>
            <button type="button" className="button quiet" onClick={() => setByToken(!byToken)}>
              {byToken ? "Use a password instead" : "Use a token instead"}
            </button>
          </form>
        </div>
      </main>
    </>
  );
}
