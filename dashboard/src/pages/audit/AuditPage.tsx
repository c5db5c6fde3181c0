// Who did what: for administrators all of it, for owners what happened in their project.
import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";

import { api, body } from "../../api/client";
import type { components } from "../../api/schema";
import { useRights } from "../../app/rights";
import { Empty } from "../../ui/Empty";
import { ErrorNote } from "../../ui/ErrorNote";
import { dateTime } from "../../ui/format";
import { Loading } from "../../ui/Loading";
import { Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { useTitle } from "../../ui/useTitle";
import { type AuditSearch, OUTCOMES, readAuditSearch } from "./search";

type Entry = components["schemas"]["AuditView"];

const route = getRouteApi("/inside/audit");

export function AuditPage() {
  useTitle("Audit");
  const { own } = useRights();
  if (!own) {
    return (
      <div className="card">
        <Empty title="For administrators and owners only">
          <p>The audit trail is read by administrators, and by the owners of a project.</p>
        </Empty>
      </div>
    );
  }
  return <Trail />;
}

function Trail() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { data, error, isPending, hasNextPage, fetchNextPage, isFetchingNextPage } = useInfiniteQuery({
    queryKey: ["audit", search],
    queryFn: ({ pageParam, signal }) =>
      body(api.GET("/api/v1/audit", { params: { query: { ...search, ...(pageParam ? { cursor: pageParam } : {}) } }, signal })),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor,
    // An administrator's reading is recorded itself: only what is asked for is read.
    refetchOnWindowFocus: false,
    placeholderData: (before) => before,
  });
  const entries = data?.pages.flatMap((page) => page.records) ?? [];
  return (
    <>
      <div className="page-head">
        <h1>Audit</h1>
      </div>
      <Filters key={JSON.stringify(search)} search={search} change={(next) => void navigate({ search: next })} />
      <ErrorNote error={error} />
      {isPending ? (
        !error && <Loading rows={8} />
      ) : entries.length === 0 ? (
        <div className="card">
          <Empty title="No record fits these filters" command="weft audit" />
        </div>
      ) : (
        <div className="card flush">
          <Table label="Table of records" columns={["Time", "Who", "Action", "Object", "Project", "Outcome", "From"]}>
            {entries.map((entry) => (
              <Row key={entry.id} entry={entry} />
            ))}
          </Table>
        </div>
      )}
      {hasNextPage && (
        <div className="empty">
          <button type="button" className="button" disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
            {isFetchingNextPage ? "Loading …" : "More records"}
          </button>
        </div>
      )}
    </>
  );
}

const TONES = { allowed: "chip", refused: "state tone-warn", failed: "state tone-bad" } as const;

function Row({ entry }: { entry: Entry }) {
  return (
    <tr>
      <td className="numbers">
        <Time at={entry.at}>{dateTime(entry.at)}</Time>
      </td>
      <td className="break">
        {entry.user ? <strong>{entry.user}</strong> : <span className="muted">{entry.actor}</span>}
        {entry.user && <div className="muted">{entry.token_id ?? entry.actor}</div>}
      </td>
      <td className="nowrap">{entry.action}</td>
      <td className="break">
        {entry.object_kind && <span className="muted">{entry.object_kind} </span>}
        {entry.object_id}
      </td>
      <td className="break">{entry.project ?? "–"}</td>
      <td>
        <span className="row keep">
          <span className={TONES[entry.outcome]}>{entry.outcome}</span>
          <span className="muted numbers">
            {entry.status}
            {entry.count > 1 && ` × ${entry.count}`}
          </span>
        </span>
      </td>
      <td className="break numbers" title={`request ${entry.request_id}`}>
        {entry.address}
      </td>
    </tr>
  );
}

const FIELDS = [
  { name: "user", label: "User", placeholder: "ada" },
  { name: "action", label: "Action", placeholder: "jobs.halt, jobs" },
  { name: "object", label: "Object", placeholder: "job-4k9x…" },
  { name: "project", label: "Project", placeholder: "vision" },
  { name: "since", label: "Since", placeholder: "2h, 3d, 2026-01-31" },
  { name: "until", label: "Until", placeholder: "1h, 2026-02-01" },
] as const;

/** What stands in the fields counts when the form is sent. */
function Filters({ search, change }: { search: AuditSearch; change: (next: AuditSearch) => void }) {
  return (
    <form
      className="filters"
      onSubmit={(event) => {
        event.preventDefault();
        const given = Object.fromEntries(new FormData(event.currentTarget));
        change(readAuditSearch(given));
      }}
    >
      <div className="row">
        {FIELDS.map(({ name, label, placeholder }) => (
          <input
            key={name}
            className="input filter"
            name={name}
            aria-label={label}
            placeholder={`${label}: ${placeholder}`}
            maxLength={name === "object" ? 310 : 200}
            defaultValue={search[name] ?? ""}
          />
        ))}
        <select className="input" name="outcome" aria-label="Outcome" defaultValue={search.outcome ?? ""}>
          <option value="">any outcome</option>
          {OUTCOMES.map((outcome) => (
            <option key={outcome}>{outcome}</option>
          ))}
        </select>
        <button type="submit" className="button">
          Filter
        </button>
        {Object.keys(search).length > 0 && (
          <button type="button" className="button quiet" onClick={() => change({})}>
            Clear
          </button>
        )}
      </div>
    </form>
  );
}
