// Keys that work anywhere outside of a text field. A page adds its own with useKeys.
import { useEffect, useRef } from "react";

import { Dialog } from "../ui/Dialog";

/** Key (as KeyboardEvent.key), or two of which the first is g, → what it does. Return false to let the browser have it. */
export type Keys = Record<string, (event: KeyboardEvent) => void | false>;

const TOGETHER = 1000; // ms between two keys that mean something together

const TYPED_INTO = "input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable=true]";

export function useKeys(keys: Keys) {
  const latest = useRef(keys);
  useEffect(() => {
    latest.current = keys;
  });
  useEffect(() => {
    let prefixed = -Infinity;
    const pressed = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (event.target instanceof Element && event.target.closest(TYPED_INTO)) return;
      if (document.querySelector("dialog[open]")) return;
      const second = event.timeStamp - prefixed < TOGETHER;
      prefixed = event.key === "g" && !second ? event.timeStamp : -Infinity;
      const action = latest.current[second ? `g ${event.key}` : event.key];
      if (action && action(event) !== false) event.preventDefault();
    };
    window.addEventListener("keydown", pressed);
    return () => window.removeEventListener("keydown", pressed);
  }, []);
}

/** `/` goes to the page's search: the field with data-search. */
export function focusSearch(): void | false {
  const field = document.querySelector<HTMLInputElement>("[data-search]");
  if (!field) return false;
  field.focus();
  field.select();
}

const HELP: [string, string][] = [
  ["/", "to the search field"],
  ["?", "this list"],
  ["g j", "to the jobs"],
  ["t", "light, dark, or as the system"],
  ["j  k", "next and previous job of the list"],
  ["x", "select the job of the list"],
  ["Enter", "open it"],
  ["n  N", "next and previous hit in a log"],
  ["g g", "to the beginning of a log"],
  ["G", "to the end of a log, and follow"],
  ["f", "give a log the whole window"],
  ["Esc", "close a dialog"],
];

export function KeysHelp({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl className="facts">
        {HELP.map(([keys, what]) => (
          <div key={keys} className="pair">
            <dt>
              {keys.split(/\s+/).map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <div className="actions">
        <button type="button" className="button primary" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
