// Tokens for the command line and programs. A token is shown once, when it is made.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api, body } from "../../api/client";
import type { components } from "../../api/schema";
import { Confirm } from "../../ui/Dialog";
import { Empty } from "../../ui/Empty";
import { ErrorNote } from "../../ui/ErrorNote";
import { ago, dateTime, value } from "../../ui/format";
import { FormDialog } from "../../ui/FormDialog";
import { Loading } from "../../ui/Loading";
import { Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { useTitle } from "../../ui/useTitle";
import { type Created, MadeToken } from "./MadeToken";
import { ServiceAccounts } from "./ServiceAccounts";

type Token = components["schemas"]["TokenView"];

const ALL = "all that I may";
const ROLES = ["viewer", "editor", "owner"] as const;

export function TokensPage() {
  useTitle("Tokens");
  const [making, setMaking] = useState(false);
  const [made, setMade] = useState<Created | null>(null);
  const [revoked, setRevoked] = useState<Token | null>(null);
  const queries = useQueryClient();
  const { data, error } = useQuery({
    queryKey: ["tokens"],
    queryFn: ({ signal }) => body(api.GET("/api/v1/tokens", { signal })),
  });
  const refresh = () => queries.invalidateQueries({ queryKey: ["tokens"] });
  const tokens = [...(data?.tokens ?? [])].sort(
    (a, b) => Number(b.current) - Number(a.current) || a.kind.localeCompare(b.kind),
  );
  const budgets = tokens.some((token) => token.budget);
  return (
    <>
      <div className="page-head">
        <h1>Tokens</h1>
        <div className="actions">
          <button type="button" className="button primary" onClick={() => setMaking(true)}>
            Make a token …
          </button>
        </div>
      </div>
      <ErrorNote error={error} />
      {!data ? (
        !error && <Loading />
      ) : (
        <div className="card flush">
          {tokens.length === 0 ? (
            <Empty title="No tokens">
              <p>The command line and programs sign in with a token.</p>
            </Empty>
          ) : (
            <Table
              label="Table of tokens"
              columns={[
                "Name",
                "Kind",
                "Begins with",
                "User",
                "Made",
                "Last used",
                "Ends",
                ...(budgets ? ["GPU-hours"] : []),
                { name: "Do", hidden: true },
              ]}
            >
              {tokens.map((token) => (
                <tr key={token.id}>
                  <td>
                    <strong className="clip" title={token.name}>
                      {token.name}
                    </strong>
                    {token.current && <span className="chip">this session</span>}
                  </td>
                  <td>{[token.kind === "browser" ? "browser" : "token", token.role].filter(Boolean).join(", ")}</td>
                  <td className="mono">{token.prefix}…</td>
                  <td>{token.user}</td>
                  <td>
                    <Time at={token.created_at}>{ago(token.created_at)}</Time>
                  </td>
                  <td>{token.last_used_at ? <Time at={token.last_used_at}>{ago(token.last_used_at)}</Time> : "never"}</td>
                  <td className="nowrap">{token.expires_at ? dateTime(token.expires_at) : "never"}</td>
                  {budgets && (
                    <td className="nowrap" title={token.budget ? `${value(token.budget.reserved)} reserved` : undefined}>
                      {token.budget ? `${value(token.budget.used)} of ${value(token.budget.gpu_hours)}` : "–"}
                    </td>
                  )}
                  <td className="right">
                    <button
                      type="button"
                      className="button small quiet danger"
                      aria-label={`Revoke ${token.name}, ${token.prefix}`}
                      onClick={() => setRevoked(token)}
                    >
                      Revoke
                    </button>
                  </td>
                </tr>
              ))}
            </Table>
          )}
        </div>
      )}
      {making && (
        <FormDialog
          title="Make a token"
          verb="Make"
          fields={[
            { name: "name", label: "Name", required: true, hint: "Where it is used: laptop, ci, …" },
            {
              name: "role",
              label: "Role",
              type: "select",
              options: [ALL, ...ROLES],
              first: ALL,
              hint: "The most that it may do. A viewer reads, an editor also submits.",
            },
            { name: "days", label: "Ends after days", type: "number", min: 1, placeholder: "never", first: "90" },
            {
              name: "hours",
              label: "Budget in GPU-hours",
              type: "number",
              min: 0.1,
              placeholder: "none",
              hint: "What its jobs may use in all. They are halted with a checkpoint when it is used up.",
            },
          ]}
          submit={async ({ name = "", days, role, hours }) => {
            const token = await body(
              api.POST("/api/v1/tokens", {
                body: {
                  name,
                  expires_in_days: days ? Number(days) : null,
                  role: ROLES.find((known) => known === role) ?? null,
                  gpu_hours: hours ? Number(hours) : null,
                },
              }),
            );
            setMade(token);
            await refresh();
          }}
          onClose={() => setMaking(false)}
        >
          <p className="muted">It is for this project only.</p>
        </FormDialog>
      )}
      {made && <MadeToken made={made} onClose={() => setMade(null)} />}
      <ServiceAccounts />
      {revoked && (
        <Confirm
          title={`Revoke ${revoked.name}?`}
          verb="Revoke"
          danger
          action={async () => {
            await api.DELETE("/api/v1/tokens/{token_id}", { params: { path: { token_id: revoked.id } } });
            await refresh();
          }}
          onClose={() => setRevoked(null)}
        >
          {revoked.current && (
            <p>
              <strong>This is your own session:</strong> you will be signed out here.
            </p>
          )}
          <p>Whatever signs in with it is signed out at once; there is no way back.</p>
        </Confirm>
      )}
    </>
  );
}
