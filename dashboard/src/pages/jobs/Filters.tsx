import { useEffect, useRef, useState } from "react";

import { type Job, STATES, type State } from "../../api/types";
import { useDebounced } from "../../ui/useDebounced";
import { COLUMNS, columnsOf, type JobsSearch } from "./search";

interface Props {
  search: JobsSearch;
  change: (changes: Partial<JobsSearch>) => void;
  /** Those that are shown: their labels and metrics are what can be chosen. */
  jobs: readonly Job[];
}

const METRIC = /^(.+?)\s*(<=|>=|<|>|=)\s*(\S+)$/;

export function Filters({ search, change, jobs }: Props) {
  const labels = [...new Set(jobs.flatMap((job) => Object.entries(job.labels).map(([key, text]) => `${key}=${text}`)))];
  const metrics = [...new Set(jobs.flatMap((job) => Object.keys(job.metrics ?? {})))].sort();
  const toggleState = (state: State) => {
    const chosen = search.state ?? [];
    const after = chosen.includes(state) ? chosen.filter((other) => other !== state) : [...chosen, state];
    change({ state: after.length ? after : undefined });
  };
  const without = (list: string[] | undefined, text: string) => {
    const after = (list ?? []).filter((other) => other !== text);
    return after.length ? after : undefined;
  };
  return (
    <div className="filters">
      <div className="row">
        <SearchField value={search.q ?? ""} change={(q) => change({ q: q || undefined })} />
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
        <Columns search={search} change={change} metrics={metrics} />
      </div>
      <div className="row" role="group" aria-label="States">
        {STATES.map((state) => (
          <button
            key={state}
            type="button"
            className="button small"
            aria-pressed={search.state?.includes(state) ?? false}
            onClick={() => toggleState(state)}
          >
            {state.toLowerCase()}
          </button>
        ))}
        {search.label?.map((label) => (
          <Removable key={label} text={label} remove={() => change({ label: without(search.label, label) })} />
        ))}
        {search.metric?.map((condition) => (
          <Removable key={condition} text={condition} remove={() => change({ metric: without(search.metric, condition) })} />
        ))}
      </div>
    </div>
  );
}

/** What is typed counts once it rests for a moment; what the URL says meanwhile replaces what stands here. */
function SearchField({ value, change }: { value: string; change: (text: string) => void }) {
  const [typed, setTyped] = useState<string | null>(null);
  const settled = useDebounced(typed, 250);
  const latest = useRef(change);
  useEffect(() => {
    latest.current = change;
  });
  useEffect(() => {
    if (settled !== null) latest.current(settled);
  }, [settled]);
  return (
    <input
      className="input search"
      type="search"
      data-search
      aria-label="Search in name, id and description"
      placeholder="Name, id or description  ( / )"
      maxLength={200}
      value={typed ?? value}
      onChange={(event) => setTyped(event.target.value)}
      onBlur={() => {
        if (typed !== null) change(typed);
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
  valid,
  add,
}: {
  name: string;
  placeholder: string;
  hint: string;
  options: string[];
  valid: (text: string) => boolean;
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
      <input
        className="input filter"
        aria-label={`${name} filter (${hint})`}
        aria-invalid={wrong}
        title={hint}
        placeholder={`${name}: ${placeholder}`}
        list={list}
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setWrong(false);
        }}
      />
      <datalist id={list}>
        {options.map((option) => (
          <option key={option} value={option} />
        ))}
      </datalist>
    </form>
  );
}

function Columns({
  search,
  change,
  metrics,
}: {
  search: JobsSearch;
  change: (changes: Partial<JobsSearch>) => void;
  metrics: string[];
}) {
  const shown = columnsOf(search);
  const offered = [...COLUMNS, ...new Set([...metrics.map((name) => `metric:${name}`), ...shown])].filter(
    (column, at, all) => all.indexOf(column) === at,
  );
  return (
    <details className="popover">
      <summary className="button">Columns</summary>
      <div className="popover-body stack">
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
            <span className="break">{column.replace(/^metric:/, "")}</span>
          </label>
        ))}
      </div>
    </details>
  );
}
