// The project's accounts for machines, below the tokens. Its owners manage them.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api, body } from "../../api/client";
import type { components } from "../../api/schema";
import { useRights } from "../../app/rights";
import { Confirm } from "../../ui/Dialog";
import { Empty } from "../../ui/Empty";
import { ErrorNote } from "../../ui/ErrorNote";
import { ago } from "../../ui/format";
import { FormDialog } from "../../ui/FormDialog";
import { Loading } from "../../ui/Loading";
import { Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { type Created, MadeToken } from "./MadeToken";

type Account = components["schemas"]["ServiceAccountView"];
type Asked = { what: "new" } | { what: "token" | "delete"; account: Account };

const ROLES = ["viewer", "editor", "owner"] as const;

export function ServiceAccounts() {
  const { own } = useRights();
  const queries = useQueryClient();
  const [asked, setAsked] = useState<Asked | null>(null);
  const [made, setMade] = useState<Created | null>(null);
  const { data, error } = useQuery({
    queryKey: ["service-accounts"],
    queryFn: ({ signal }) => body(api.GET("/api/v1/service-accounts", { signal })),
  });
  const refresh = async () => {
    await queries.invalidateQueries({ queryKey: ["service-accounts"] });
    await queries.invalidateQueries({ queryKey: ["tokens"] });
  };
  const close = () => setAsked(null);
  return (
    <section className="stack apart" aria-labelledby="service-accounts">
      <div className="row">
        <h2 id="service-accounts">Service accounts</h2>
        {own && (
          <button type="button" className="button small" onClick={() => setAsked({ what: "new" })}>
            Add a service account …
          </button>
        )}
      </div>
      <ErrorNote error={error} />
      {!data ? (
        !error && <Loading />
      ) : (
        <div className="card flush">
          {data.service_accounts.length === 0 ? (
            <Empty title="No service accounts">
              <p>A service account is the project’s, for a machine such as a CI. It works with tokens only.</p>
            </Empty>
          ) : (
            <Table
              label="Table of service accounts"
              columns={["Name", "User", "Role", "Tokens", "Made", { name: "Do", hidden: true }]}
            >
              {data.service_accounts.map((account) => (
                <tr key={account.name}>
                  <td>
                    <strong>{account.name}</strong>
                  </td>
                  <td className="mono">{account.user}</td>
                  <td>{account.role}</td>
                  <td>{account.tokens}</td>
                  <td>
                    <Time at={account.created_at}>{ago(account.created_at)}</Time>
                  </td>
                  <td className="right nowrap">
                    {own && (
                      <>
                        <button
                          type="button"
                          className="button small quiet"
                          aria-label={`Make a token of ${account.name}`}
                          onClick={() => setAsked({ what: "token", account })}
                        >
                          Token …
                        </button>
                        <button
                          type="button"
                          className="button small quiet danger"
                          aria-label={`Delete ${account.name}`}
                          onClick={() => setAsked({ what: "delete", account })}
                        >
                          Delete
                        </button>
                      </>
                    )}
                  </td>
                </tr>
              ))}
            </Table>
          )}
        </div>
      )}
      {asked?.what === "new" && (
        <FormDialog
          title="Add a service account"
          verb="Add"
          fields={[
            { name: "name", label: "Name", required: true, hint: "What works with it: ci, nightly, …" },
            { name: "role", label: "Role", type: "select", options: ROLES, first: "editor" },
          ]}
          submit={async ({ name = "", role }) => {
            const wanted = ROLES.find((known) => known === role) ?? "viewer";
            await api.POST("/api/v1/service-accounts", { body: { name, role: wanted } });
            await refresh();
          }}
          onClose={close}
        />
      )}
      {asked?.what === "token" && (
        <FormDialog
          title={`Make a token of ${asked.account.name}`}
          verb="Make"
          fields={[
            { name: "name", label: "Name", required: true, first: "token" },
            { name: "days", label: "Ends after days", type: "number", min: 1, placeholder: "never", first: "90" },
          ]}
          submit={async ({ name = "", days }) => {
            const token = await body(
              api.POST("/api/v1/service-accounts/{name}/tokens", {
                params: { path: { name: asked.account.name } },
                body: { name, expires_in_days: days ? Number(days) : null },
              }),
            );
            setMade(token);
            await refresh();
          }}
          onClose={close}
        />
      )}
      {asked?.what === "delete" && (
        <Confirm
          title={`Delete ${asked.account.name}?`}
          verb="Delete"
          danger
          action={async () => {
            await api.DELETE("/api/v1/service-accounts/{name}", { params: { path: { name: asked.account.name } } });
            await refresh();
          }}
          onClose={close}
        >
          <p>Its tokens end at once. Its jobs stay.</p>
        </Confirm>
      )}
      {made && <MadeToken made={made} onClose={() => setMade(null)} />}
    </section>
  );
}
