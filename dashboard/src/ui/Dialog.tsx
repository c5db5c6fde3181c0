import { type ReactNode, useEffect, useId, useRef, useState } from "react";

import { ErrorNote } from "./ErrorNote";

/** A modal dialog. It is the browser's own, which keeps the focus inside and closes on Escape. */
export function Dialog({
  title,
  onClose,
  wide = false,
  children,
}: {
  title: string;
  onClose: () => void;
  wide?: boolean;
  children: ReactNode;
}) {
  const element = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog ref={element} className={wide ? "dialog wide" : "dialog"} aria-labelledby={heading} onCancel={onClose}>
      <div className="stack">
        <h2 id={heading}>{title}</h2>
        {children}
      </div>
    </dialog>
  );
}

/** Asks before an action that can't be undone. `action` resolves when it has succeeded; its error is shown. */
export function Confirm({
  title,
  children,
  verb,
  danger = false,
  action,
  onClose,
}: {
  title: string;
  children?: ReactNode;
  verb: string;
  danger?: boolean;
  action: () => Promise<unknown>;
  onClose: () => void;
}) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const run = async () => {
    setBusy(true);
    setError(null);
    try {
      await action();
      onClose();
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} onClose={onClose}>
      {children}
      <ErrorNote error={error} />
      <div className="actions">
        <button type="button" className="button" onClick={onClose}>
          Cancel
        </button>
        <button
          type="button"
          className={danger ? "button primary danger" : "button primary"}
          disabled={busy}
          onClick={() => void run()}
        >
          {busy ? `${verb} …` : verb}
        </button>
      </div>
    </Dialog>
  );
}
