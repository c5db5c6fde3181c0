import { useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, useLocation, useRouter } from "@tanstack/react-router";
import { type FormEvent, useEffect, useId, useRef, useState } from "react";

import { AwayError, json } from "../api/client";
import { sessionQuery, signInQuery } from "../api/queries";
import type { ProviderUrl, Session } from "../api/types";
import { Away } from "../app/Shell";
import { ErrorNote } from "../ui/ErrorNote";
import { useTitle } from "../ui/useTitle";
import logo from "../weft.svg";
import { rememberNext } from "./provider";

const route = getRouteApi("/signin");
const LINK = "weft_l_";

type Credentials = { user: string; password: string } | { token: string } | { link: string };

/** A sign-in link that was opened and is not used yet; `instead` of whom, where somebody is signed in. */
interface Opened {
  link: string;
  instead: string | null;
}

export function SignInPage() {
  useTitle("Sign in");
  const { next } = route.useSearch();
  const router = useRouter();
  const queries = useQueryClient();
  const [byToken, setByToken] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [opened, setOpened] = useState<Opened | null>(null);
  const { data: help } = useQuery(signInQuery);
  const id = useId();

  const enter = async (sent: Credentials) => {
    setBusy(true);
    setError(null);
    try {
      const session = await json<Session>("/session", "POST", sent);
      // What the page knows may be another user's.
      if (opened?.instead) window.location.assign(next ?? "/");
      queries.setQueryData(sessionQuery.queryKey, session);
      router.history.push(next ?? "/");
    } catch (problem) {
      setError(problem);
      setBusy(false);
      if (!(problem instanceof AwayError)) setOpened(null);
    }
  };
  const leave = async (name: string) => {
    setBusy(true);
    setError(null);
    try {
      const { url } = await json<ProviderUrl>("/session/provider", "POST", { name });
      rememberNext(next);
      window.location.assign(url);
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const text = (name: string) => String(form.get(name) ?? "").trim();
    void enter(byToken ? { token: text("token") } : { user: text("user"), password: String(form.get("password")) });
  };

  const hash = useLocation({ select: (location) => location.hash });
  const taken = useRef("");
  useEffect(() => {
    if (!hash.startsWith(LINK) || taken.current === hash) return;
    taken.current = hash;
    // Out of the address bar and the history at once.
    void router.navigate({ to: "/signin", search: next ? { next } : {}, hash: "", replace: true });
    void queries.fetchQuery(sessionQuery).then(
      (session) => {
        setOpened({ link: hash, instead: session?.user ?? null });
        if (!session) void enter({ link: hash });
      },
      (problem: unknown) => {
        setOpened({ link: hash, instead: null });
        setError(problem);
      },
    );
  });

  return (
    <>
      <Away />
      <main className="sign-in">
        <div className="card stack">
          <h1 className="brand">
            <img src={logo} alt="" /> Weft
          </h1>
          {next && <p className="muted">Sign in to go on where you were.</p>}
          {opened && !busy && (
            <div className="stack">
              {opened.instead && (
                <p>
                  You are signed in as <b className="break">{opened.instead}</b>.
                </p>
              )}
              <ErrorNote error={error} />
              <button type="button" className="button primary" onClick={() => void enter({ link: opened.link })}>
                {opened.instead ? "Sign in by the link instead" : "Sign in by the link"}
              </button>
              {opened.instead && (
                <button type="button" className="button" onClick={() => router.history.push(next ?? "/")}>
                  Go on as {opened.instead}
                </button>
              )}
            </div>
          )}
          <form onSubmit={submit} onInput={() => setError(null)} hidden={opened !== null && !busy}>
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
                  {help?.profile_file ? (
                    <>
                      <code>weft up</code> has put yours into <code className="break">{help.profile_file}</code>.
                    </>
                  ) : (
                    <>
                      <code>weft tokens create</code> makes one where you are signed in already.
                    </>
                  )}
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
            <button type="button" className="button quiet" onClick={() => {
                setByToken(!byToken);
                setError(null);
              }}
            >
              {byToken ? "Use a password instead" : "Use a token instead"}
            </button>
          </form>
          {help && help.providers.length > 0 && (
            <div className="stack providers" hidden={opened !== null && !busy}>
              <span className="or muted">or</span>
              {help.providers.map((provider) => (
                <button
                  key={provider.name}
                  type="button"
                  className="button"
                  disabled={busy}
                  onClick={() => void leave(provider.name)}
                >
                  Sign in with {provider.title}
                </button>
              ))}
            </div>
          )}
          {help?.profile_file && (
            <p className="muted">
              Or by a link, which this prints:
              <br />
              <code className="break">WEFT_PROFILE_FILE={quoted(help.profile_file)} weft login --browser</code>
            </p>
          )}
        </div>
      </main>
    </>
  );
}

/** As a shell takes it. */
function quoted(path: string) {
  return /^[\w@%+=:,./-]+$/.test(path) ? path : `'${path.replaceAll("'", `'"'"'`)}'`;
}
