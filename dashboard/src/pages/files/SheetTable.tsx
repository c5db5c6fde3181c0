import { useMemo, useState } from "react";

import { plural } from "../../ui/format";
import { type Sheet, sortRows } from "./csv";

const ROWS = 500;
const COLUMNS = 100;

/** The table of a file. */
export function SheetTable({ sheet }: { sheet: Sheet }) {
  const [order, setOrder] = useState<{ column: number; down: boolean } | null>(null);
  const [most, setMost] = useState(ROWS);
  const rows = useMemo(() => (order ? sortRows(sheet, order.column, order.down) : sheet.rows), [sheet, order]);
  const head = sheet.head.slice(0, COLUMNS);
  const turn = (column: number) =>
    setOrder((before) =>
      before?.column !== column ? { column, down: false } : before.down ? null : { column, down: true },
    );
  return (
    <div className="card flush sheet">
      {/* Scrolled by keys. */}
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
      <div className="table-wrap" role="region" aria-label="Table of the file" tabIndex={0}>
        <table className="table">
          <thead>
            <tr>
              {head.map((name, at) => (
                <th
                  key={at}
                  scope="col"
                  className={sheet.numeric[at] ? "right" : undefined}
                  aria-sort={order?.column === at ? (order.down ? "descending" : "ascending") : undefined}
                >
                  <button type="button" className="sort" onClick={() => turn(at)}>
                    {name || `column ${at + 1}`}
                    {order?.column === at && <span aria-hidden="true">{order.down ? " ↓" : " ↑"}</span>}
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, most).map((row, at) => (
              <tr key={at}>
                {row.slice(0, COLUMNS).map((value, column) => (
                  <td key={column} className={sheet.numeric[column] ? "right numbers" : undefined}>
                    {value}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p className="card-foot muted row">
        {plural(rows.length, "row")}, {plural(sheet.head.length, "column")}
        {sheet.head.length > COLUMNS && `, of which ${COLUMNS} are shown`}
        {rows.length > most && (
          <button type="button" className="button small" onClick={() => setMost(most + 2000)}>
            {(rows.length - most).toLocaleString()} more
          </button>
        )}
      </p>
    </div>
  );
}
