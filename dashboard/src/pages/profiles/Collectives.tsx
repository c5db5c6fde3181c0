// Which ranks the others wait for: how late each enters the collectives.
import "../../styles/charts.css";

import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";

import { call } from "../../api/client";
import { color } from "../../charts/lines";
import { Plot } from "../../charts/Plot";
import { ErrorNote } from "../../ui/ErrorNote";
import { plural } from "../../ui/format";
import { Table } from "../../ui/Table";
import { latest } from "./collectives";

const SHOWN = 8;

/** `urls`: by rank, of the files of the kind `collectives`. */
export function Collectives({ id, urls }: { id: string; urls: ReadonlyMap<number, string> }) {
  const [range, setRange] = useState<[number, number] | null>(null);
  const { data, error } = useQuery({
    queryKey: ["collectives", id],
    queryFn: async ({ signal }) => {
      const read = [...urls].map(async ([rank, url]) => [rank, await (await call(url, { signal })).text()] as const);
      return new Map(await Promise.all(read));
    },
    staleTime: Infinity,
  });
  const found = useMemo(() => (data ? latest(data) : null), [data]);
  if (error) return <ErrorNote error={error} />;
  if (!found) return null;
  const ranks = found.ranks.slice(0, SHOWN);
  const lines = ranks.map(({ rank, late }, at) => ({
    key: String(rank),
    label: `rank ${rank}`,
    color: color(at),
    dashed: false,
    x: found.numbers,
    min: late,
    max: late,
    last: late,
  }));
  return (
    <section aria-label="Collectives">
      <h2 className="profile-files">Which rank the others wait for</h2>
      <p className="muted">
        How long after the first rank each rank entered {plural(found.numbers.length, "collective")}.
      </p>
      <Plot
        lines={lines}
        axis="step"
        log={false}
        smooth={0}
        range={range}
        format={(value) => (value === null || value === undefined ? "" : milliseconds(value))}
        binary={false}
        formatX={(number) => `#${number}`}
        onZoom={setRange}
        label="Time after the first rank, by collective"
        zero
      />
      <Table
        label="Ranks"
        columns={["Rank", { name: "Entered last", right: true }, { name: "After the first rank (median)", right: true }]}
      >
        {ranks.map(({ rank, last, median }) => (
          <tr key={rank}>
            <td className="numbers">{rank}</td>
            <td className="right numbers">{(100 * last).toFixed(0)} %</td>
            <td className="right numbers">{milliseconds(median)}</td>
          </tr>
        ))}
      </Table>
    </section>
  );
}

const milliseconds = (value: number) =>
  value < 1000 ? `${value.toFixed(1)} ms` : `${(value / 1000).toFixed(2)} s`;
