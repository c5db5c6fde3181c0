// Where data is, and what jobs may know: names and addresses; passwords and values never come back from the API.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";

import { api, body } from "../../api/client";
import { useRights } from "../../app/rights";
import { Confirm } from "../../ui/Dialog";
import { Empty } from "../../ui/Empty";
import { ago } from "../../ui/format";
import { FormDialog } from "../../ui/FormDialog";
import { Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { toast } from "../../ui/toast";
import { useTitle } from "../../ui/useTitle";
import { ListCard, RemoveButton } from "./ListCard";

type Asked = { what: "store" | "secret" } | { what: "forget" | "unset"; name: string };

export function StoresPage() {
  useTitle("Data and secrets");
  const { edit } = useRights();
  const [asked, setAsked] = useState<Asked | null>(null);
  return (
    <>
      <div className="page-head">
        <h1>Data and secrets</h1>
      </div>
      <div className="stack">
        <Stores edit={edit} ask={setAsked} />
        <Secrets edit={edit} ask={setAsked} />
      </div>
      {asked && <Ask asked={asked} onClose={() => setAsked(null)} />}
    </>
  );
}

interface PartProps {
  edit: boolean;
  ask: (asked: Asked) => void;
}

function Stores({ edit, ask }: PartProps) {
  const { data, error } = useQuery({
    queryKey: ["datastores"],
    queryFn: ({ signal }) => body(api.GET("/api/v1/datastores", { signal })),
  });
  return (
    <ListCard title="Data stores" add={edit ? "Add a data store …" : null} onAdd={() => ask({ what: "store" })} error={error}>
      {!data ? null : data.datastores.length === 0 ? (
        <Empty title="No data stores" command="weft data --help">
          <p>
            S3 addresses with their credentials, kept here for manifests&apos; <code>datastore: NAME</code>.
          </p>
        </Empty>
      ) : (
        <Table
          label="Table of data stores"
          columns={["Name", "Endpoint", "Region", "Access key", "Since", { name: "Do", hidden: true }]}
        >
          {data.datastores.map((store) => (
            <tr key={store.name}>
              <td className="break">
                <Link to="/stores/$name" params={{ name: store.name }}>
                  <strong>{store.name}</strong>
                </Link>
              </td>
              <td className="mono break">{store.endpoint}</td>
              <td>{store.region ?? "–"}</td>
              <td className="mono break">{store.user_name ?? "temporary keys"}</td>
              <td>
                <Time at={store.created_at}>{ago(store.created_at)}</Time>
              </td>
              <td className="right">
                {edit && store.user_name !== null && (
                  <RemoveButton
                    verb="Forget"
                    what={`data store ${store.name}`}
                    onClick={() => ask({ what: "forget", name: store.name })}
                  />
                )}
              </td>
            </tr>
          ))}
        </Table>
      )}
    </ListCard>
  );
}

function Secrets({ edit, ask }: PartProps) {
  const { data, error } = useQuery({
    queryKey: ["secrets"],
    queryFn: ({ signal }) => body(api.GET("/api/v1/secrets", { signal })),
  });
  return (
    <ListCard title="Secrets" add={edit ? "Keep a secret …" : null} onAdd={() => ask({ what: "secret" })} error={error}>
      {!data ? null : data.secrets.length === 0 ? (
        <Empty title="No secrets">
          <p>
            Values that a manifest&apos;s <code>secrets:</code> hands to the program as environment, by name only.
          </p>
        </Empty>
      ) : (
        <Table label="Table of secrets" columns={["Name", "Value", "Set", { name: "Do", hidden: true }]}>
          {data.secrets.map((secret) => (
            <tr key={secret.name}>
              <td className="break">
                <strong>{secret.name}</strong>
              </td>
              <td className="muted">never shown</td>
              <td>
                <Time at={secret.updated_at}>{ago(secret.updated_at)}</Time>
              </td>
              <td className="right">
                {edit && (
                  <RemoveButton
                    verb="Delete"
                    what={`secret ${secret.name}`}
                    onClick={() => ask({ what: "unset", name: secret.name })}
                  />
                )}
              </td>
            </tr>
          ))}
        </Table>
      )}
    </ListCard>
  );
}

function Ask({ asked, onClose }: { asked: Asked; onClose: () => void }) {
  const queries = useQueryClient();
  const refresh = (key: string) => queries.invalidateQueries({ queryKey: [key] });
  switch (asked.what) {
    case "store":
      return (
        <FormDialog
          title="Add a data store"
          verb="Add"
          fields={[
            { name: "name", label: "Name", required: true, hint: "What manifests call it." },
            { name: "endpoint", label: "Endpoint", type: "url", required: true, placeholder: "https://s3.example.org" },
            { name: "region", label: "Region", placeholder: "only if the store requires one" },
            { name: "user_name", label: "Access key", required: true },
            { name: "password", label: "Secret key", type: "password", required: true },
          ]}
          submit={async ({ name = "", endpoint = "", region, user_name = "", password = "" }) => {
            await api.POST("/api/v1/datastores", {
              body: { name, endpoint, user_name, password, ...(region ? { region } : {}) },
            });
            toast(`Data store ${name} is kept`);
            await refresh("datastores");
          }}
          onClose={onClose}
        >
          <p className="muted">The store is asked whether it takes these credentials. The secret key is not shown again.</p>
        </FormDialog>
      );
    case "secret":
      return (
        <FormDialog
          title="Keep a secret"
          verb="Keep"
          fields={[
            { name: "name", label: "Name", required: true, hint: "A secret that has this name is replaced." },
            { name: "value", label: "Value", type: "password", required: true },
          ]}
          submit={async ({ name = "", value = "" }) => {
            await api.PUT("/api/v1/secrets/{name}", { params: { path: { name } }, body: { value } });
            toast(`Secret ${name} is kept`);
            await refresh("secrets");
          }}
          onClose={onClose}
        />
      );
    case "forget":
    case "unset": {
      const { what, name } = asked;
      const path = { params: { path: { name } } };
      const store = what === "forget";
      return (
        <Confirm
          title={store ? `Forget ${name}?` : `Delete ${name}?`}
          verb={store ? "Forget" : "Delete"}
          danger
          action={async () => {
            await (store ? api.DELETE("/api/v1/datastores/{name}", path) : api.DELETE("/api/v1/secrets/{name}", path));
            await refresh(store ? "datastores" : "secrets");
          }}
          onClose={onClose}
        >
          <p>{store && "What is in it stays as it is. "}Manifests that name it are refused from now on.</p>
        </Confirm>
      );
    }
  }
}
