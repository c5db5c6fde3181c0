import { type ReactNode, useId } from "react";

import { ErrorNote } from "../../ui/ErrorNote";
import { Loading } from "../../ui/Loading";

interface Props {
  title: string;
  /** The text of the button that adds an item; null hides the button. */
  add: string | null;
  onAdd: () => void;
  error: unknown;
  /** The list; null until it has arrived. */
  children: ReactNode;
}

/** A card with a list, and the button that adds an item to it. */
export function ListCard({ title, add, onAdd, error, children }: Props) {
  const id = useId();
  return (
    <section className="card flush" aria-labelledby={id}>
      <div className="row card-title">
        <h2 id={id}>{title}</h2>
        {add !== null && (
          <button type="button" className="button small" onClick={onAdd}>
            {add}
          </button>
        )}
      </div>
      <ErrorNote error={error} />
      {children ?? (error ? null : <Loading />)}
    </section>
  );
}

/** The button that removes a row's item. */
export function RemoveButton({ verb, what, onClick }: { verb: string; what: string; onClick: () => void }) {
  return (
    <button type="button" className="button small quiet danger" aria-label={`${verb} ${what}`} onClick={onClick}>
      {verb}
    </button>
  );
}
