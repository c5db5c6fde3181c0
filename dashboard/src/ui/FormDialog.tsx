// A dialog that asks for a few values.
import { type FormEvent, type ReactNode, useState } from "react";

import { Dialog } from "./Dialog";
import { ErrorNote } from "./ErrorNote";

interface Field {
  name: string;
  label: string;
  type?: "text" | "password" | "number" | "url" | "textarea" | "select" | "check";
  hint?: string;
  required?: boolean;
  first?: string;
  placeholder?: string;
  options?: readonly string[];
  /** Suggestions of a text field. */
  suggested?: readonly string[];
  min?: number;
}

interface FormDialogProps {
  title: string;
  verb: string;
  fields: readonly Field[];
  /** Values by name; a check is "1" or "". Its error is shown, and the dialog stays. */
  submit: (values: Record<string, string>) => Promise<unknown>;
  onClose: () => void;
  children?: ReactNode;
}

export function FormDialog({ title, verb, fields, submit, onClose, children }: FormDialogProps) {
  const [values, setValues] = useState(() => Object.fromEntries(fields.map((field) => [field.name, field.first ?? ""])));
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const run = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await submit(values);
      onClose();
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form autoComplete="off" onSubmit={(event) => void run(event)}>
        {children}
        {fields.map((field) => (
          <Input
            key={field.name}
            field={field}
            value={values[field.name] ?? ""}
            set={(value) => setValues((before) => ({ ...before, [field.name]: value }))}
          />
        ))}
        <ErrorNote error={error} />
        <div className="actions">
          <button type="button" className="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" className="button primary" disabled={busy}>
            {busy ? `${verb} …` : verb}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function Input({ field, value, set }: { field: Field; value: string; set: (value: string) => void }) {
  const { name, label, type = "text", hint, required, placeholder, options, suggested, min } = field;
  if (type === "check") {
    return (
      <label className="check">
        <input type="checkbox" checked={value === "1"} onChange={(event) => set(event.target.checked ? "1" : "")} />
        {label}
      </label>
    );
  }
  const shared = { className: "input", name, value, required, placeholder };
  const change = { onChange: (event: { target: { value: string } }) => set(event.target.value) };
  const list = suggested ? `suggested-${name}` : undefined;
  return (
    <label className="field">
      <span className="label">{label}</span>
      {type === "textarea" ? (
        <textarea rows={3} spellCheck={false} {...shared} {...change} />
      ) : type === "select" ? (
        <select {...shared} {...change}>
          {options?.map((option) => (
            <option key={option} value={option}>
              {option}
            </option>
          ))}
        </select>
      ) : (
        <input
          {...shared}
          {...change}
          type={type}
          min={min}
          step={type === "number" ? "any" : undefined}
          list={list}
          autoComplete={type === "password" ? "new-password" : "off"}
          spellCheck={false}
        />
      )}
      {suggested && (
        <datalist id={list}>
          {suggested.map((suggestion) => (
            <option key={suggestion} value={suggestion} />
          ))}
        </datalist>
      )}
      {hint && <span className="hint">{hint}</span>}
    </label>
  );
}
