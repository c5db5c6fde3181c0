// A job's results become a version of a model, and a stage moves to that version: from the job's page or a sweep's.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api, body } from "../../api/client";
import { FormDialog } from "../../ui/FormDialog";
import { toast } from "../../ui/toast";

const STAGES = ["production", "staging", "archived"];

interface Props {
  job: string;
  /** The versions that hold the job's results: NAME@NUMBER. */
  models: readonly string[];
  /** The text of the button of a job that is no version yet. */
  verb?: string;
}

export function RegisterButton({ job, models, verb = "Register …" }: Props) {
  const [open, setOpen] = useState(false);
  const refresh = useRefresh(job);
  const [version] = models;
  return (
    <>
      <button type="button" className="button" onClick={() => setOpen(true)}>
        {version === undefined ? verb : `Promote ${version} …`}
      </button>
      {open &&
        (version === undefined ? (
          <Register job={job} refresh={refresh} onClose={() => setOpen(false)} />
        ) : (
          <Promote version={version} refresh={refresh} onClose={() => setOpen(false)} />
        ))}
    </>
  );
}

function useRefresh(job: string) {
  const queries = useQueryClient();
  return async () => {
    await Promise.all([["job", job], ["models"], ["model"]].map((queryKey) => queries.invalidateQueries({ queryKey })));
  };
}

async function promote(name: string, stage: string, version: string) {
  await api.PUT("/api/v1/models/{name}/stages/{stage}", { params: { path: { name, stage } }, body: { version } });
  toast(`${stage} is ${name}@${version} now`);
}

function Register({ job, refresh, onClose }: { job: string; refresh: () => Promise<void>; onClose: () => void }) {
  const { data } = useQuery({
    queryKey: ["models", ""],
    queryFn: ({ signal }) => body(api.GET("/api/v1/models", { params: { query: {} }, signal })),
  });
  return (
    <FormDialog
      title={`Register ${job}`}
      verb="Register"
      fields={[
        {
          name: "name",
          label: "Model",
          required: true,
          suggested: data?.models.map((model) => model.name) ?? [],
          hint: "The job's results become the next version of this model. A new name begins a new model.",
        },
        { name: "stage", label: "Stage", suggested: STAGES, placeholder: "none", hint: "This stage moves to the new version." },
      ]}
      submit={async ({ name = "", stage }) => {
        const made = await body(
          api.POST("/api/v1/models/{name}/versions", { params: { path: { name } }, body: { job } }),
        );
        toast(`The results are ${made.reference} now`);
        if (stage) await promote(name, stage, String(made.version));
        await refresh();
      }}
      onClose={onClose}
    />
  );
}

/** `version` is NAME@NUMBER; `refresh` reads again what the promotion changes. */
export function Promote({ version, refresh, onClose }: { version: string; refresh: () => Promise<void>; onClose: () => void }) {
  const at = version.lastIndexOf("@");
  return (
    <FormDialog
      title={`Promote ${version}`}
      verb="Promote"
      fields={[
        {
          name: "stage",
          label: "Stage",
          required: true,
          suggested: STAGES,
          first: "production",
          hint: "It moves here from the version that it is at.",
        },
      ]}
      submit={async ({ stage = "" }) => {
        await promote(version.slice(0, at), stage, version.slice(at + 1));
        await refresh();
      }}
      onClose={onClose}
    />
  );
}
