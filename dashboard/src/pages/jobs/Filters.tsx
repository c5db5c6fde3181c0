import { useEffect, useRef, useState } from "react";

import { type Job, STATES, type State } from "../../api/types";
import { Popover } from "../../ui/Popover";
import { useDebounced } from "../../ui/useDebounced";
import { groupKeys } from "./groups";
import { columnName } from "./JobsTable";
import { COLUMNS, columnsOf, type JobsSearch, tabOf, TABS } from "./search";
import { Views } from "./Views";

interface Props {
  search: JobsSearch;
  change: (changes: Partial<JobsSearch>) => void;
  /** Those that are shown: their labels, users and metrics are what can be chosen. */
  jobs: readonly Job[];
}

const METRIC = /^(.+?)\s*(<=|>=|<|>|=)\s*(\S+)$/;
const SINCE: readonly [string, string][] = [
  ["1h", "Last hour"],
  ["1d", "Last day"],
  ["7d", "Last 7 days"],
  ["30d", "Last 30 days"],
];
const sorted = (texts: Iterable<string>) => [...new Set(texts)].sort();

/** Running, waiting, done, failed: each is some of the eight states. */
export function StateTabs({ search, change }: Pick<Props, "search" | "change">) {
  const now = tabOf(search.state);
  return (
    <div className="state-tabs" role="group" aria-label="Jobs that are">
      {TABS.map((tab) => (
        <button
          key={tab.name}
          type="button"
          aria-pressed={tab === now}
          onClick={() => change({ state: tab.states.length ? [...tab.states] : undefined })}
        >
          {tab.name}
        </button>
      ))}
    </div>
  );
}

export function Filters({ search, change, jobs }: Props) {
  const metrics = sorted(jobs.flatMap((job) => Object.keys(job.metrics ?? {})));
  return (
    <div className="filters">
      <div className="row">
        <SearchField value={search.q ?? ""} change={(q) => change({ q: q || undefined })} />
        <FilterMenu search={search} change={change} jobs={jobs} metrics={metrics} />
        <Columns search={search} change={change} metrics={metrics} />
        <GroupBy search={search} change={change} jobs={jobs} />
        <Views search={search} />
        <Chosen search={search} change={change} />
      </div>
    </div>
  );
}

function GroupBy({ search, change, jobs }: Props) {
  const keys = groupKeys(jobs);
  const offered = search.group && !keys.includes(search.group) ? [search.group, ...keys] : keys;
  if (!offered.length) return null;
  return (
    <select
      className="input"
      aria-label="Group by"
      value={search.group ?? ""}
      onChange={(event) => change({ group: event.target.value || undefined })}
    >
      <option value="">No groups</option>
      {offered.map((key) => (
        <option key={key} value={key}>
          By {key}
        </option>
      ))}
    </select>
  );
}

/** The filters in force, each with a button that removes it. */
function Chosen({ search, change }: Pick<Props, "search" | "change">) {
  const without = (list: string[] | undefined, text: string) => {
    const after = (list ?? []).filter((other) => other !== text);
    return after.length ? after : undefined;
  };
  return (
    <>
      {!tabOf(search.state) && (
        <Removable text={(search.state ?? []).join(", ").toLowerCase()} remove={() => change({ state: undefined })} />
      )}
      {search.label?.map((label) => (
        <Removable key={label} text={label} remove={() => change({ label: without(search.label, label) })} />
      ))}
      {search.metric?.map((condition) => (
        <Removable key={condition} text={condition} remove={() => change({ metric: without(search.metric, condition) })} />
      ))}
      {search.param?.map((condition) => (
        <Removable key={condition} text={condition} remove={() => change({ param: without(search.param, condition) })} />
      ))}
      {search.user && <Removable text={`user ${search.user}`} remove={() => change({ user: undefined })} />}
      {search.engine && <Removable text={`engine ${search.engine}`} remove={() => change({ engine: undefined })} />}
      {search.since && <Removable text={sinceName(search.since)} remove={() => change({ since: undefined })} />}
    </>
  );
}

const sinceName = (since: string) =>
  SINCE.find(([span]) => span === since)?.[1].toLowerCase() ?? `since ${since}`;

function FilterMenu({ search, change, jobs, metrics }: Props & { metrics: string[] }) {
  const labels = sorted(jobs.flatMap((job) => Object.entries(job.labels).map(([key, text]) => `${key}=${text}`)));
  const params = sorted(jobs.flatMap((job) => Object.entries(job.params ?? {}).map(([key, text]) => `${key}=${text}`)));
  const toggle = (state: State) => {
    const chosen = search.state ?? [];
    const after = chosen.includes(state) ? chosen.filter((other) => other !== state) : [...chosen, state];
    change({ state: after.length ? after : undefined });
  };
  return (
    <Popover name="Filter" className="filter-menu">
        <fieldset>
          <legend className="label">States</legend>
          {STATES.map((state) => (
            <label key={state} className="check">
              <input type="checkbox" checked={search.state?.includes(state) ?? false} onChange={() => toggle(state)} />
              {state.toLowerCase()}
            </label>
          ))}
        </fieldset>
        <AddFilter
          name="Label"
          placeholder="team=vision"
          options={labels}
          valid={(text) => text.indexOf("=") > 0}
          hint="key=value"
          add={(text) => change({ label: [...new Set([...(search.label ?? []), text])] })}
        />
        <AddFilter
          name="Metric"
          placeholder="loss<0.3"
          options={metrics.map((name) => `${name}<`)}
          valid={(text) => METRIC.test(text)}
          hint="NAME<VALUE, also > <= >= =, and NAME.min, NAME.max"
          add={(text) => change({ metric: [...new Set([...(search.metric ?? []), text.replace(METRIC, "$1$2$3")])] })}
        />
        <AddFilter
          name="Parameter value"
          placeholder="lr=0.1"
          options={params}
          valid={(text) => text.indexOf("=") > 0}
          hint="NAME=VALUE, exactly as the training has logged it with MLflow"
          add={(text) => change({ param: [...new Set([...(search.param ?? []), text])] })}
        />
        <AddFilter
          name="User"
          placeholder="ada"
          options={sorted(jobs.map((job) => job.user))}
          hint="the user who submitted the job"
          add={(user) => change({ user })}
        />
        <AddFilter
          name="Engine"
          placeholder="local"
          options={sorted(jobs.map((job) => job.engine))}
          hint="the engine's name"
          add={(engine) => change({ engine })}
        />
        <label className="field">
          <span className="label">Submitted</span>
          <select
            className="input"
            value={search.since ?? ""}
            onChange={(event) => change({ since: event.target.value || undefined })}
          >
            <option value="">At any time</option>
            {SINCE.map(([span, name]) => (
              <option key={span} value={span}>
                {name}
              </option>
            ))}
            {search.since && !SINCE.some(([span]) => span === search.since) && (
              <option value={search.since}>Since {search.since}</option>
            )}
          </select>
        </label>
        <label className="field">
          <span className="label">Since the day</span>
          <input
            className="input"
            type="date"
            value={/^\d{4}-\d\d-\d\d$/.test(search.since ?? "") ? search.since : ""}
            onChange={(event) => change({ since: event.target.value || undefined })}
          />
        </label>
    </Popover>
  );
}

/** What is typed counts once it rests for a moment. A URL that changes meanwhile, by Back for instance, replaces it. */
function SearchField({ value, change }: { value: string; change: (text: string) => void }) {
  const [typed, setTyped] = useState<{ text: string; over: string } | null>(null);
  const text = typed && (typed.over === value || typed.text === value) ? typed.text : value;
  const settled = useDebounced(typed, 250);
  const latest = useRef(change);
  useEffect(() => {
    latest.current = change;
  });
  useEffect(() => {
    if (settled !== null) latest.current(settled.text);
  }, [settled]);
  return (
    <input
      className="input search"
      type="search"
      data-search
      aria-label="Search in name, id and description"
      placeholder="Name, id or description  ( / )"
      maxLength={200}
      value={text}
      onChange={(event) => setTyped({ text: event.target.value, over: value })}
      onBlur={() => {
        if (typed !== null && text !== value) change(text);
        setTyped(null);
      }}
    />
  );
}

function Removable({ text, remove }: { text: string; remove: () => void }) {
  return (
    <button type="button" className="chip chosen" aria-label={`Remove the filter ${text}`} onClick={remove}>
      {text} <span aria-hidden="true">×</span>
    </button>
  );
}

function AddFilter({
  name,
  placeholder,
  hint,
  options,
  valid = (text) => text !== "",
  add,
}: {
  name: string;
  placeholder: string;
  hint: string;
  options: string[];
  valid?: (text: string) => boolean;
  add: (text: string) => void;
}) {
  const [text, setText] = useState("");
  const [wrong, setWrong] = useState(false);
  const list = `filter-${name}`;
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        const given = text.trim();
        setWrong(!valid(given));
        if (!valid(given)) return;
        add(given);
        setText("");
      }}
    >
      <label className="field">
        <span className="label">{name}</span>
      <input
        className="input"
        aria-label={`${name} filter (${hint})`}
        aria-invalid={wrong}
        title={hint}
        placeholder={placeholder}
        list={list}
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setWrong(false);
        }}
      />
      </label>
      <datalist id={list}>
        {options.map((option) => (
          <option key={option} value={option} />
        ))}
      </datalist>
    </form>
  );
}

function Columns({ search, change, metrics }: Pick<Props, "search" | "change"> & { metrics: string[] }) {
  const shown = columnsOf(search);
  const known = [...COLUMNS, ...metrics.map((name) => `metric:${name}`)];
  const offered = [...known, ...shown.filter((column) => !known.includes(column))];
  return (
    <Popover name="Columns">
        {offered.map((column) => (
          <label key={column} className="check">
            <input
              type="checkbox"
              checked={shown.includes(column)}
              onChange={() =>
                change({
                  col: shown.includes(column)
                    ? shown.filter((other) => other !== column)
                    : offered.filter((other) => other === column || shown.includes(other)),
                })
              }
            />
            <span className="break">{columnName(column)}</span>
          </label>
        ))}
        <AddFilter
          name="Parameter"
          placeholder="lr"
          options={[]}
          hint="a parameter that the training logs with MLflow"
          add={(name) => change({ col: [...new Set([...shown, `param:${name}`])] })}
        />
    </Popover>
  );
}
