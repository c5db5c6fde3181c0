import { getRouteApi, Link } from "@tanstack/react-router";

import { since, value } from "../../ui/format";
import { headlineOf } from "../../ui/reason";
import { tone } from "../../ui/StateBadge";
import { Table } from "../../ui/Table";
import { useNow } from "../../ui/useNow";
import { bestFirst, haveParents, over, parametersOf, shown, type Sweep, type Trial } from "./trials";

const route = getRouteApi("/inside/sweeps/$sweepId");

export function TrialTable({ sweep, trials }: { sweep: Sweep; trials: readonly Trial[] }) {
  const { sort } = route.useSearch();
  const navigate = route.useNavigate();
  const now = useNow(!over(sweep));
  const parameters = parametersOf(trials);
  const parents = haveParents(trials);
  const rows = sort === "number" ? trials : bestFirst(trials, sweep.goal);
  const turn = (to: "number" | undefined) => void navigate({ search: { sort: to }, replace: true, resetScroll: false });
  return (
    <section className="card flush" aria-labelledby="trials">
      <div className="card-title row spread">
        <h2 id="trials">Trials</h2>
        <div className="row" role="group" aria-label="Order">
          <button type="button" className="button small" aria-pressed={sort !== "number"} onClick={() => turn(undefined)}>
            Best first
          </button>
          <button type="button" className="button small" aria-pressed={sort === "number"} onClick={() => turn("number")}>
            By number
          </button>
        </div>
      </div>
      {trials.length === 0 ? (
        <p className="card-foot muted">None has begun.</p>
      ) : (
        <Table
          label="Table of trials"
          columns={[
            { name: "Trial", right: true },
            ...(parents ? [{ name: "From", right: true as const }] : []),
            "State",
            { name: sweep.metric, right: true },
            ...parameters.map((name) => ({ name, right: true as const })),
            { name: "Duration", right: true },
            "Job",
          ]}
        >
          {rows.map((trial) => (
            <tr key={trial.number} className={trial.number === sweep.best?.number ? "best" : undefined}>
              <td className="right">{trial.number}</td>
              {parents && (
                <td className="right" title={typeof trial.parent === "number" ? `Began with the checkpoint of trial ${trial.parent}` : undefined}>
                  {trial.parent ?? "–"}
                </td>
              )}
              <td title={trial.reason}>
                <span className="one-line">
                  <span className={`state tone-${tone(stateOf(trial))}`}>{stateOf(trial)}</span>
                  {trial.reason && <span className="muted clip">{headlineOf(trial.reason)}</span>}
                </span>
              </td>
              <td className="right">{value(trial.value)}</td>
              {parameters.map((name) => (
                <td key={name} className="right nowrap">
                  {shown(trial.parameters[name])}
                </td>
              ))}
              <td className="right nowrap">{since(trial.created_at, trial.ended_at ?? now)}</td>
              <td className="nowrap">
                {trial.job ? (
                  <Link to="/jobs/$jobId" params={{ jobId: trial.job }} className="mono">
                    {trial.job}
                  </Link>
                ) : (
                  <span className="muted">runs elsewhere</span>
                )}
              </td>
            </tr>
          ))}
        </Table>
      )}
    </section>
  );
}

/** While it runs, the state of its job says more. */
const stateOf = (trial: Trial) => (trial.state === "RUNNING" && trial.job_state ? trial.job_state : trial.state);
