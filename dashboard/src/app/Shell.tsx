// The frame of every page after the sign-in: the menu, the user and the project, and whether the API answers.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, Outlet, useNavigate } from "@tanstack/react-router";
import { useRef, useState } from "react";

import { json } from "../api/client";
import { useAway } from "../api/connection";
import { sessionQuery } from "../api/queries";
import type { Session } from "../api/types";
import { toast } from "../ui/toast";
import logo from "../weft.svg";
import { focusSearch, KeysHelp, useKeys } from "./keys";
import { NAVIGATION } from "./navigation";
import { useProjectTurn } from "./project";
import { useRights } from "./rights";
import { useTheme } from "./theme";

export function Shell() {
  const { data: session } = useQuery(sessionQuery);
  const { own } = useRights();
  const [open, setOpen] = useState(false);
  const [help, setHelp] = useState(false);
  const [theme, turnTheme] = useTheme();
  const navigate = useNavigate();
  const main = useRef<HTMLElement>(null);

  useKeys({
    "/": focusSearch,
    "?": () => setHelp(true),
    t: turnTheme,
    "g j": () => void navigate({ to: "/" }),
  });

  return (
    <>
      <a className="skip" href="#main" onClick={() => main.current?.focus()}>
        Skip to the page
      </a>
      <div className="shell">
        <header className={open ? "side open" : "side"}>
          <div className="side-top">
            <Link to="/" className="brand">
              <img src={logo} alt="" /> Weft
            </Link>
            <button
              type="button"
              className="button quiet menu-button"
              aria-expanded={open}
              onClick={() => setOpen(!open)}
            >
              Menu
            </button>
          </div>
          <nav className="nav" aria-label="Pages">
            {NAVIGATION.filter((page) => (!page.admin || session?.admin) && (!page.owns || own) && !(page.edits && session?.role === "viewer")).map((page) => (
              <Link key={page.to} to={page.to} activeOptions={{ exact: page.to === "/", includeSearch: false }}
                onClick={() => setOpen(false)}
              >
                {page.name}
              </Link>
            ))}
          </nav>
          {session && (
            <div className="side-foot">
              <ProjectChoice session={session} />
              <div className="who">
                <span className="break" title={`${session.role} of ${session.project}`}>
                  {session.user}
                </span>
                <SignOut />
              </div>
              <div className="row">
                <button type="button" className="button quiet small" onClick={turnTheme}>
                  Theme: {theme}
                </button>
                <button type="button" className="button quiet small" onClick={() => setHelp(true)}>
                  Keys <kbd>?</kbd>
                </button>
              </div>
            </div>
          )}
        </header>
        <div>
          <Away />
          <main className="main" id="main" ref={main} tabIndex={-1}>
            <Outlet />
          </main>
        </div>
      </div>
      {help && <KeysHelp onClose={() => setHelp(false)} />}
    </>
  );
}

export function Away() {
  const away = useAway();
  return (
    <div aria-live="polite">
      {away && (
        <div className="banner">
          The API does not answer. What you see may be old; this page goes on by itself when the API is back.
        </div>
      )}
    </div>
  );
}

function ProjectChoice({ session }: { session: Session }) {
  const navigate = useNavigate();
  const turn = useProjectTurn();
  const change = async (project: string) => {
    if (await turn(project)) await navigate({ to: "/" });
  };
  return (
    <label className="field">
      <span className="visually-hidden">Project</span>
      <select className="input" value={session.project} onChange={(event) => void change(event.target.value)}>
        {session.projects.map((project) => (
          <option key={project.name} value={project.name}>
            {project.name}
          </option>
        ))}
      </select>
    </label>
  );
}

function SignOut() {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const leave = async () => {
    try {
      await json("/session", "DELETE");
    } catch (error) {
      toast(`Not signed out: ${(error as Error).message}`, "bad");
      return;
    }
    queries.clear();
    queries.setQueryData(sessionQuery.queryKey, null);
    await navigate({ to: "/signin", search: {} });
  };
  return (
    <button type="button" className="button quiet small" onClick={() => void leave()}>
      Sign out
    </button>
  );
}
