import type { ReactNode } from "react";

type Column = string | { name: string; right?: true; hidden?: true };

interface Props {
  /** What it is a table of. */
  label: string;
  columns: readonly Column[];
  /** Its rows. */
  children: ReactNode;
}

/** A table, which may be wider than its card: the arrow keys scroll it. */
export function Table({ label, columns, children }: Props) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <div className="table-wrap" role="region" aria-label={label} tabIndex={0}>
      <table className="table">
        <thead>
          <tr>
            {columns.map((column) => {
              const { name, right, hidden } = typeof column === "string" ? { name: column } : column;
              return (
                <th key={name} scope="col" className={right && "right"}>
                  {hidden ? <span className="visually-hidden">{name}</span> : name}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}
