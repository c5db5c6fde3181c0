// The parameters beside the values: all at once, each by itself, and how much each matters.
import { useQuery } from "@tanstack/react-query";

import { api, body } from "../../api/client";
import { Parallel } from "../../charts/Parallel";
import { Scatter } from "../../charts/Scatter";
import { pointsOf, type Sweep, type Trial } from "./trials";

const MOST_SLICES = 12;

export function ParametersAndValue({ sweep, trials }: { sweep: Sweep; trials: readonly Trial[] }) {
  const { names, points } = pointsOf(sweep, trials);
  if (points.length < 2 || names.length < 2) return null;
  return (
    <section className="card" aria-labelledby="parallel">
      <h2 id="parallel">Parameters and value</h2>
      <Parallel names={names} points={points} what="trials" />
    </section>
  );
}

export function Slices({ sweep, trials }: { sweep: Sweep; trials: readonly Trial[] }) {
  const { data } = useQuery({
    queryKey: ["sweep", sweep.id, "importance", sweep.told],
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/sweeps/{sweep_id}/importance", { params: { path: { sweep_id: sweep.id } }, signal })),
    staleTime: Infinity,
    placeholderData: (before) => before,
    enabled: sweep.told > 0,
  });
  const shares = new Map(data?.parameters.map((parameter) => [parameter.name, parameter.share]));
  const { names, points } = pointsOf(sweep, trials);
  if (points.length < 2 || names.length < 2) return null;
  const value = names.length - 1;
  const order = names
    .slice(0, value)
    .map((name, at) => ({ name, at, share: shares.get(name) }))
    .sort((a, b) => (b.share ?? 0) - (a.share ?? 0) || a.at - b.at);
  return (
    <section className="card" aria-labelledby="slices">
      <h2 id="slices">Each parameter</h2>
      <p className="muted card-note">
        {!data
          ? "…"
          : shares.size
          ? `The share says how much a parameter matters for a good value: its part in what the best of ${data?.trials} trials have in common (PED-ANOVA).`
          : "From 10 trials with different values on, this also says how much each parameter matters."}
      </p>
      <ul className="slices">
        {order.slice(0, MOST_SLICES).map(({ name, at, share }) => (
          <li key={name}>
            <p className="row spread">
              <strong className="break">{name}</strong>
              {share !== undefined && (
                <span className="importance">
                  <span className="usage-bar" aria-hidden="true">
                    <span className="usage-now" style={{ width: `${share * 100}%` }} />
                  </span>
                  <span className="numbers nowrap">{Math.round(share * 100)} %</span>
                </span>
              )}
            </p>
            <Scatter names={names} points={points} x={at} y={value} what="trials" />
          </li>
        ))}
      </ul>
    </section>
  );
}
