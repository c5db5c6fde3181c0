import { type ReactNode, useId } from "react";

import { ErrorNote, Loading } from "../../ui/parts";

interface Props {
  title: string;
  /** The button that adds one, for who may. */
  add: string | null;
  onAdd: () => void;
  error: unknown;
  /** Null until what is listed has come. */
  children: ReactNode;
}

/** A card of things that are kept, with the button that adds one. */
export function Part({ title, add, onAdd, error, children }: Props) {
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

/** The button of a row by which it goes. */
export function Drop({ verb, what, onClick }: { verb: string; what: string; onClick: () => void }) {
  return (
    <button type="button" className="button small quiet danger" aria-label={`${verb} ${what}`} onClick={onClick}>
      {verb}
    </button>
  );
}
