import { type FormEvent, useState } from "react";

import { ErrorNote } from "./ErrorNote";

interface FieldProps {
  name: string;
  text: string;
  rows: number;
  most: number;
  save: (text: string) => Promise<void>;
  close: () => void;
}

/** A text that is being edited. Escape leaves it as it was; Ctrl+Enter saves it. */
export function TextForm({ name, text, rows, most, save, close }: FieldProps) {
  const [typed, setTyped] = useState(text);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event?: FormEvent) => {
    event?.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await save(typed);
      close();
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return (
    <form className="stack edit" onSubmit={(event) => void submit(event)}>
      <textarea
        aria-label={name}
        // The user has just asked to type here.
        // eslint-disable-next-line jsx-a11y/no-autofocus
        autoFocus
        rows={rows}
        maxLength={most}
        value={typed}
        onChange={(event) => setTyped(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") close();
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void submit();
        }}
      />
      <ErrorNote error={error} />
      <div className="actions">
        <button type="button" className="button small" onClick={close}>
          Cancel
        </button>
        <button type="submit" className="button small primary" disabled={busy}>
          Save
        </button>
      </div>
    </form>
  );
}

export function EditButton({ what, open }: { what: string; open: () => void }) {
  return (
    <button type="button" className="button quiet small edit-button" onClick={open}>
      Edit<span className="visually-hidden"> the {what}</span>
    </button>
  );
}
