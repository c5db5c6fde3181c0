import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";

import { api, body } from "../../api/client";
import { Empty } from "../../ui/Empty";
import { ErrorNote } from "../../ui/ErrorNote";
import { ago } from "../../ui/format";
import { Loading } from "../../ui/Loading";
import { Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { useDebounced } from "../../ui/useDebounced";
import { useTitle } from "../../ui/useTitle";

const route = getRouteApi("/inside/models");

export function ModelsPage() {
  useTitle("Models");
  const { q } = route.useSearch();
  const navigate = route.useNavigate();
  const wanted = useDebounced(q ?? "", 250);
  const { data, error, isPending, hasNextPage, fetchNextPage, isFetchingNextPage } = useInfiniteQuery({
    queryKey: ["models", wanted],
    queryFn: ({ pageParam, signal }) =>
      body(
        api.GET("/api/v1/models", {
          params: { query: { ...(wanted ? { q: wanted } : {}), ...(pageParam ? { cursor: pageParam } : {}) } },
          signal,
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor,
    placeholderData: (before) => before,
  });
  const models = data?.pages.flatMap((page) => page.models) ?? [];
  return (
    <>
      <div className="page-head">
        <h1>Models</h1>
        <input
          className="input"
          type="search"
          data-search
          aria-label="Part of a model's name"
          placeholder="Name  ( / )"
          value={q ?? ""}
          onChange={(event) => void navigate({ search: { q: event.target.value || undefined }, replace: true })}
        />
      </div>
      <ErrorNote error={error} />
      {isPending ? (
        !error && <Loading rows={6} />
      ) : models.length === 0 ? (
        <div className="card">
          {wanted ? (
            <Empty title="No model has such a name" />
          ) : (
            <Empty title="No models yet" command="weft models register JOB NAME">
              <p>What a completed job has stored becomes the next version of a model.</p>
            </Empty>
          )}
        </div>
      ) : (
        <div className="card flush">
          <Table
            label="Table of models"
            columns={[
              "Model",
              "Stages",
              { name: "Versions", right: true },
              { name: "Latest", right: true },
              "Changed",
            ]}
          >
            {models.map((model) => (
              <tr key={model.name}>
                <td className="break">
                  <Link to="/models/$name" params={{ name: model.name }}>
                    <strong>{model.name}</strong>
                  </Link>
                </td>
                <td>
                  <span className="row labels">
                    {Object.entries(model.stages).map(([stage, version]) => (
                      <span key={stage} className="chip">
                        {stage} @{version}
                      </span>
                    ))}
                  </span>
                </td>
                <td className="right">{model.versions}</td>
                <td className="right">{model.latest ?? "–"}</td>
                <td>
                  <Time at={model.updated_at}>{ago(model.updated_at)}</Time>
                </td>
              </tr>
            ))}
          </Table>
        </div>
      )}
      {hasNextPage && (
        <div className="empty">
          <button type="button" className="button" disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
            More models
          </button>
        </div>
      )}
    </>
  );
}
