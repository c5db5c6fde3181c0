// The notifications of a job: to whom they went, and with what outcome.
import { useQuery, useQueryClient } from "@tanstack/react-query";

import { api, body } from "../../api/client";
import { LIVE } from "../../api/queries";
import type { components } from "../../api/schema";
import { useRights } from "../../app/rights";
import { ErrorNote } from "../../ui/ErrorNote";
import { ago } from "../../ui/format";
import { Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { toast } from "../../ui/toast";

type Delivery = components["schemas"]["DeliveryView"];

const TONE: Record<Delivery["state"], string> = { waiting: "warn", delivered: "good", failed: "bad" };

/** Nothing where the manifest names nobody to notify, or nothing has happened yet. */
export function Deliveries({ jobId }: { jobId: string }) {
  const queries = useQueryClient();
  const { edit } = useRights();
  const key = ["deliveries", jobId];
  const { data, error } = useQuery({
    queryKey: key,
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/jobs/{job_id}/deliveries", { params: { path: { job_id: jobId } }, signal })),
    refetchInterval: LIVE,
  });
  const replay = async (id: string) => {
    try {
      await api.POST("/api/v1/jobs/{job_id}/deliveries/{delivery_id}/replay", {
        params: { path: { job_id: jobId, delivery_id: id } },
      });
      toast("The notification will be sent again");
    } catch (problem) {
      toast(problem instanceof Error ? problem.message : String(problem), "bad");
    }
    await queries.invalidateQueries({ queryKey: key });
  };
  if (error) return <ErrorNote error={error} />;
  if (!data?.deliveries.length) return null;
  return (
    <section className="card flush" aria-labelledby="deliveries">
      <h2 id="deliveries" className="card-title">
        Notifications
      </h2>
      <Table
        label="Table of notifications"
        columns={["Event", "To", "State", "Last try", { name: "Tries", right: true }, { name: "Action", hidden: true }]}
      >
        {data.deliveries.map((delivery) => (
          <tr key={delivery.id}>
            <td>
              {delivery.event}
              <div className="muted break">{delivery.message}</div>
            </td>
            <td className="break">{delivery.target}</td>
            <td>
              <span className={`state tone-${TONE[delivery.state]}`}>{delivery.state}</span>
            </td>
            <td>
              {delivery.status ?? "not tried yet"}
              {delivery.tried_at && (
                <div className="muted">
                  <Time at={delivery.tried_at}>{ago(delivery.tried_at)}</Time>
                </div>
              )}
            </td>
            <td className="right">{delivery.tries}</td>
            <td className="right">
              {edit && (
                <button type="button" className="button small" onClick={() => void replay(delivery.id)}>
                  Send again
                </button>
              )}
            </td>
          </tr>
        ))}
      </Table>
    </section>
  );
}
