import { useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link, useRouter } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";

import { json } from "../api/client";
import { sessionQuery } from "../api/queries";
import type { Session } from "../api/types";
import { Away } from "../app/Shell";
import { ErrorNote } from "../ui/ErrorNote";
import { useTitle } from "../ui/useTitle";
import logo from "../weft.svg";
import { readReturned, takeNext } from "./provider";

const route = getRouteApi("/signin/$provider");

/** Where an identity provider sends the browser back to: the end of the sign-in. */
export function ProviderPage() {
  useTitle("Sign in");
  const { provider } = route.useParams();
  const router = useRouter();
  const queries = useQueryClient();
  const [error, setError] = useState<unknown>(null);
  const begun = useRef(false);

  useEffect(() => {
    if (begun.current) return;
    begun.current = true;
    const returned = readReturned(window.location.search);
    // Out of the address bar and the history: a code is for one sign-in.
    window.history.replaceState(window.history.state, "", window.location.pathname);
    const finish = async () => {
      if ("refused" in returned) throw new Error(returned.refused);
      const session = await json<Session>("/session", "POST", { provider: { name: provider, ...returned } });
      queries.clear(); // it may be another user's
      queries.setQueryData(sessionQuery.queryKey, session);
      router.history.replace(takeNext());
    };
    finish().catch(setError);
  }, [provider, queries, router]);

  return (
    <>
      <Away />
      <main className="sign-in">
        <div className="card stack">
          <h1 className="brand">
            <img src={logo} alt="" /> Weft
          </h1>
          {error === null ? (
            <p className="muted">Signing in …</p>
          ) : (
            <>
              <ErrorNote error={error} />
              <Link to="/signin" className="button">
                Back to the sign-in
              </Link>
            </>
          )}
        </div>
      </main>
    </>
  );
}
