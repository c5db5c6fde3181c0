import { tone } from "../../ui/StateBadge";
import { over, type Sweep } from "./trials";

export function SweepState({ sweep }: { sweep: Pick<Sweep, "state"> }) {
  return <span className={`state tone-${tone(sweep.state)}${over(sweep) ? "" : " live"}`}>{sweep.state}</span>;
}

/** How many trials have ended, and how many there are to be. */
export function Progress({ sweep }: { sweep: Pick<Sweep, "told" | "asked" | "trials"> }) {
  const share = (count: number) => `${Math.min(100, (100 * count) / Math.max(1, sweep.trials))}%`;
  return (
    <span className="sweep-progress">
      <span className="usage-bar" aria-hidden="true">
        <span className="usage-peak" style={{ width: share(sweep.asked) }} />
        <span className="usage-now" style={{ width: share(sweep.told) }} />
      </span>
      <span className="numbers nowrap">
        {sweep.told} of {sweep.trials}
      </span>
    </span>
  );
}
