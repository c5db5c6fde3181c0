import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api, body } from "../../api/client";
import type { components } from "../../api/schema";
import { Confirm } from "../../ui/Dialog";
import { FormDialog } from "../../ui/FormDialog";
import { Table } from "../../ui/Table";
import { toast } from "../../ui/toast";
import { ListCard } from "./ListCard";

type User = components["schemas"]["UserView"];
type Asked = { what: "new" } | { what: "password" | "disable" | "admin"; user: User };

export function Users({ me }: { me: string }) {
  const [asked, setAsked] = useState<Asked | null>(null);
  const { data, error } = useQuery({
    queryKey: ["users"],
    queryFn: ({ signal }) => body(api.GET("/api/v1/users", { signal })),
  });
  return (
    <>
      <ListCard title="Users" add="Add a user …" onAdd={() => setAsked({ what: "new" })} error={error}>
        {data && (
          <Table
            label="Table of users"
            columns={["Name", "E-mail", "Projects", "Is", { name: "Do", hidden: true }]}
          >
            {data.users.map((user) => (
              <tr key={user.name}>
                <td className="break">
                  <strong>{user.name}</strong>
                </td>
                <td className="break">{user.email ?? "–"}</td>
                <td className="break">
                  {user.projects.map((project) => `${project.name} (${project.role})`).join(", ") || (
                    <span className="muted">none</span>
                  )}
                </td>
                <td>
                  <span className="row labels keep">
                    {user.admin && <span className="chip">administrator</span>}
                    {user.disabled && <span className="state tone-bad">disabled</span>}
                    {!user.password && <span className="chip">tokens only</span>}
                  </span>
                </td>
                <td>
                  <span className="row keep">
                    {user.name === me ? (
                      <span className="muted">you</span>
                    ) : (
                      <>
                        <Do what="Password …" of={user} act={() => setAsked({ what: "password", user })} />
                        <Do
                          what={user.admin ? "No administrator" : "Administrator"}
                          of={user}
                          act={() => setAsked({ what: "admin", user })}
                        />
                        <Do
                          what={user.disabled ? "Enable" : "Disable"}
                          of={user}
                          act={() => setAsked({ what: "disable", user })}
                        />
                      </>
                    )}
                  </span>
                </td>
              </tr>
            ))}
          </Table>
        )}
      </ListCard>
      {asked && <Ask asked={asked} onClose={() => setAsked(null)} />}
    </>
  );
}

function Do({ what, of, act }: { what: string; of: User; act: () => void }) {
  return (
    <button type="button" className="button small quiet" aria-label={`${what} (${of.name})`} onClick={act}>
      {what}
    </button>
  );
}

function Ask({ asked, onClose }: { asked: Asked; onClose: () => void }) {
  const queries = useQueryClient();
  const refresh = () => queries.invalidateQueries({ queryKey: ["users"] });
  if (asked.what === "new") {
    return (
      <FormDialog
        title="Add a user"
        verb="Add"
        fields={[
          { name: "name", label: "Name", required: true },
          { name: "email", label: "E-mail" },
          { name: "password", label: "Password", type: "password", hint: "At least 8 characters, not easy to guess; none: tokens only." },
          { name: "admin", label: "Administrator", type: "check" },
        ]}
        submit={async ({ name = "", email, password, admin }) => {
          await api.POST("/api/v1/users", {
            body: {
              name,
              admin: admin === "1",
              ...(email ? { email } : {}),
              ...(password ? { password } : {}),
            },
          });
          toast(`${name} is a user now`);
          await refresh();
        }}
        onClose={onClose}
      >
        <p className="muted">Then make the user a member of a project, below.</p>
      </FormDialog>
    );
  }
  const { name, admin, disabled } = asked.user;
  const change = async (body: components["schemas"]["UserChange"]) => {
    await api.PATCH("/api/v1/users/{name}", { params: { path: { name } }, body });
    await refresh();
  };
  if (asked.what === "password") {
    return (
      <FormDialog
        title={`A new password for ${name}`}
        verb="Set"
        fields={[
          { name: "password", label: "Password", type: "password", required: true },
          { name: "end_tokens", label: "End all tokens, too", type: "check" },
        ]}
        submit={({ password = "", end_tokens }) => change({ password, end_tokens: end_tokens === "1" })}
        onClose={onClose}
      />
    );
  }
  if (asked.what === "admin") {
    return (
      <Confirm
        title={admin ? `${name} is no administrator any more?` : `Make ${name} an administrator?`}
        verb={admin ? "Take away" : "Make"}
        action={() => change({ admin: !admin })}
        onClose={onClose}
      >
        <p>Administrators look after users, projects and quotas.</p>
      </Confirm>
    );
  }
  return (
    <Confirm
      title={disabled ? `Enable ${name}?` : `Disable ${name}?`}
      verb={disabled ? "Enable" : "Disable"}
      danger={!disabled}
      action={() => change({ disabled: !disabled })}
      onClose={onClose}
    >
      <p>
        {disabled
          ? "They can sign in again."
          : "All of their tokens and sessions end, and their password is refused. Their jobs go on."}
      </p>
    </Confirm>
  );
}
