// The content of a data store: its containers, their folders and objects, and a preview.
import "../../styles/data.css";

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";

import { ApiError, api, body } from "../../api/client";
import { OtherProjects } from "../../app/project";
import { Empty } from "../../ui/Empty";
import { ErrorNote } from "../../ui/ErrorNote";
import { dateTime, size } from "../../ui/format";
import { Loading } from "../../ui/Loading";
import { toast } from "../../ui/toast";
import { useTitle } from "../../ui/useTitle";
import { neighbour } from "../files/links";
import { isImage, loadPreview } from "../files/preview";
import { PreviewBody } from "../files/PreviewBody";
import { nameIn, type Place, previewUrl, steps } from "./place";

const route = getRouteApi("/inside/stores/$name");
const PAGE = 200;

export function DataPage() {
  const { name } = route.useParams();
  const place = route.useSearch();
  useTitle(name);
  return (
    <>
      <div className="page-head">
        <h1 className="break">{name}</h1>
        <nav aria-label="Folders" className="crumbs">
          <Link to="/stores">Data stores</Link>
          <Step store={name} place={{}} name={name} last={!place.container} />
          {steps(place).map((step, at, all) => (
            <Step key={at} store={name} place={step.place} name={step.name} last={at === all.length - 1} />
          ))}
        </nav>
      </div>
      {place.container === undefined ? (
        <Containers store={name} />
      ) : (
        <div className="split">
          <Objects key={`${place.container}/${place.prefix ?? ""}`} store={name} container={place.container} place={place} />
          {place.key === undefined ? (
            <div className="card">
              <Empty title="Choose an object to look at" command={`weft data ls ${name}:${place.container}`} />
            </div>
          ) : (
            <Shown key={place.key} store={name} container={place.container} objectKey={place.key} />
          )}
        </div>
      )}
    </>
  );
}

function Step({ store, place, name, last }: { store: string; place: Place; name: string; last: boolean }) {
  return (
    <>
      <span aria-hidden="true" className="muted">
        /
      </span>
      {last ? (
        <span className="break">{name}</span>
      ) : (
        <Link to="/stores/$name" params={{ name: store }} search={place} className="break">
          {name}
        </Link>
      )}
    </>
  );
}

const noStore = (error: unknown) => error instanceof ApiError && error.status === 404;

function Containers({ store }: { store: string }) {
  const { data, error } = useQuery({
    queryKey: ["datastore", store],
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/datastores/{name}/objects", { params: { path: { name: store } }, signal })),
  });
  if (noStore(error)) {
    return (
      <Empty title="There is no such data store">
        <OtherProjects />
        <Link to="/stores" className="button">
          To the data stores
        </Link>
      </Empty>
    );
  }
  if (!data) return error ? <ErrorNote error={error} /> : <Loading rows={4} />;
  const containers = data.containers ?? [];
  return (
    <section className="card flush" aria-label="Containers">
      {containers.length === 0 ? (
        <Empty title="No containers" command={`weft data put FILE ${store}:CONTAINER`} />
      ) : (
        <ul className="list">
          {containers.map((container) => (
            <li key={container}>
              <Link to="/stores/$name" params={{ name: store }} search={{ container }} className="item">
                <span className="break">{container}</span>
              </Link>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function Objects({ store, container, place }: { store: string; container: string; place: Place }) {
  const prefix = place.prefix ?? "";
  const { data, error, hasNextPage, fetchNextPage, isFetchingNextPage } = useInfiniteQuery({
    queryKey: ["datastore", store, container, prefix],
    queryFn: ({ pageParam, signal }) =>
      body(
        api.GET("/api/v1/datastores/{name}/objects", {
          params: {
            path: { name: store },
            query: { container, prefix, folders: true, limit: PAGE, ...(pageParam ? { cursor: pageParam } : {}) },
          },
          signal,
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor,
  });
  const folders = data?.pages.flatMap((page) => page.folders ?? []) ?? [];
  // An object whose key is the folder itself is how some programs make a folder.
  const objects = data?.pages.flatMap((page) => page.objects ?? []).filter((object) => object.key !== prefix) ?? [];
  return (
    <section className="card flush" aria-label="Objects">
      <ErrorNote error={error} />
      {!data ? (
        !error && <Loading rows={4} />
      ) : folders.length + objects.length === 0 ? (
        <Empty title="Nothing is here" />
      ) : (
        <ul className="list">
          {folders.map((folder) => (
            <li key={folder}>
              <Link to="/stores/$name" params={{ name: store }} search={{ container, prefix: folder }} className="item">
                <strong className="break">{nameIn(folder, prefix)}</strong>
              </Link>
            </li>
          ))}
          {objects.map((object) => (
            <li key={object.key}>
              <Link
                to="/stores/$name"
                params={{ name: store }}
                search={{ ...place, key: object.key }}
                replace
                className={object.key === place.key ? "item shown" : "item"}
                activeOptions={{ exact: true, includeSearch: true }}
                title={dateTime(object.modified)}
              >
                <span className="break">{nameIn(object.key, prefix)}</span>
                <span className="muted nowrap numbers">{size(object.size)}</span>
              </Link>
            </li>
          ))}
        </ul>
      )}
      {hasNextPage && (
        <button type="button" className="button quiet" disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
          {isFetchingNextPage ? "Loading …" : "More"}
        </button>
      )}
    </section>
  );
}

function Shown({ store, container, objectKey }: { store: string; container: string; objectKey: string }) {
  const { data, error, isPending } = useQuery({
    queryKey: ["preview", store, container, objectKey],
    queryFn: ({ signal }) => loadPreview(previewUrl(store, container, objectKey), signal),
    gcTime: 60_000,
  });
  // The store itself sends the object: its URL is valid for minutes.
  const download = async () => {
    try {
      const { url } = await body(
        api.POST("/api/v1/datastores/{name}/downloads", {
          params: { path: { name: store } },
          body: { container, key: objectKey },
        }),
      );
      window.location.assign(url);
    } catch (problem) {
      toast((problem as Error).message, "bad");
    }
  };
  const image = (path: string) => {
    const beside = neighbour(objectKey, path);
    return beside !== null && isImage(beside) ? previewUrl(store, container, beside) : null;
  };
  return (
    <section className="stack preview" aria-label={`The object ${objectKey}`}>
      <div className="row">
        <h2 className="break">{objectKey}</h2>
        <span className="actions">
          <button type="button" className="button small" onClick={() => void download()}>
            Download
          </button>
        </span>
      </div>
      <ErrorNote error={error} />
      {isPending && !error ? <Loading /> : data && <PreviewBody preview={data} name={objectKey} image={image} />}
    </section>
  );
}
