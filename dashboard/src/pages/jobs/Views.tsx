// Lists that the project's users have saved under a name.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";

import { api, body } from "../../api/client";
import { useRights } from "../../app/rights";
import { parseSearch, stringifySearch } from "../../app/urls";
import { ErrorNote } from "../../ui/ErrorNote";
import { ago } from "../../ui/format";
import { Popover } from "../../ui/Popover";
import { type JobsSearch, readJobsSearch } from "./search";

export function Views({ search }: { search: JobsSearch }) {
  const { data, error } = useQuery({
    queryKey: ["views"],
    queryFn: ({ signal }) => body(api.GET("/api/v1/views", { signal })),
    staleTime: 60_000,
  });
  const { edit } = useRights();
  const queries = useQueryClient();
  const [failed, setFailed] = useState<unknown>(null);
  const query = stringifySearch({ ...search }).slice(1);
  const views = data?.views ?? [];
  const current = views.find((view) => view.query === query && query);

  const run = async (action: () => Promise<unknown>) => {
    setFailed(null);
    try {
      await action();
      await queries.invalidateQueries({ queryKey: ["views"] });
    } catch (problem) {
      setFailed(problem);
    }
  };
  return (
    <Popover name={current ? `View: ${current.name}` : "Views"} className="views">
      <ErrorNote error={error ?? failed} />
      {views.length === 0 && !error && <p className="muted">No saved views yet.</p>}
      <ul className="choices">
        {views.map((view) => (
          <li key={view.name} className="row">
            <Link
              to="/"
              search={readJobsSearch(parseSearch(view.query))}
              className="button quiet small view"
              aria-current={view === current ? "true" : undefined}
              activeProps={{}}
              title={`Saved by ${view.user} ${ago(view.updated_at)}`}
            >
              {view.name}
            </Link>
            {edit && (
              <button
                type="button"
                className="button quiet small"
                aria-label={`Delete the view ${view.name}`}
                onClick={() => void run(() => api.DELETE("/api/v1/views/{name}", { params: { path: { name: view.name } } }))}
              >
                ×
              </button>
            )}
          </li>
        ))}
      </ul>
      {edit && (
        <Save
          first={current?.name ?? ""}
          save={(name) => run(() => api.PUT("/api/v1/views/{name}", { params: { path: { name } }, body: { query } }))}
        />
      )}
    </Popover>
  );
}

function Save({ first, save }: { first: string; save: (name: string) => Promise<void> }) {
  const [name, setName] = useState(first);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (name.trim()) void save(name.trim());
  };
  return (
    <form onSubmit={submit}>
      <label className="field">
        <span className="label">Save this list as</span>
        <input
          className="input"
          maxLength={80}
          pattern="[^/]+"
          title="Up to 80 characters, without a slash"
          placeholder="Failed this week"
          value={name}
          onChange={(event) => setName(event.target.value)}
        />
      </label>
      <p className="muted small">All settings of this list, for all members of the project. The same name replaces a view.</p>
      <button type="submit" className="button small" disabled={!name.trim()}>
        Save the view
      </button>
    </form>
  );
}
