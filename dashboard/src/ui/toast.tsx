// Short news about what was just done: shown for a while, read out by screen readers.
import { useSyncExternalStore } from "react";

interface Toast {
  id: number;
  text: string;
  tone: "good" | "bad";
}

let toasts: readonly Toast[] = [];
let next = 1;
const listeners = new Set<() => void>();

function set(value: readonly Toast[]) {
  toasts = value;
  listeners.forEach((listener) => listener());
}

export function toast(text: string, tone: Toast["tone"] = "good") {
  const id = next++;
  set([...toasts.slice(-3), { id, text, tone }]);
  window.setTimeout(() => set(toasts.filter((other) => other.id !== id)), tone === "bad" ? 9000 : 4500);
}

export function Toasts() {
  const shown = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    () => toasts,
  );
  return (
    <div className="toasts" role="status" aria-live="polite">
      {shown.map((toast) => (
        <div key={toast.id} className={`toast ${toast.tone}`}>
          {toast.text}
        </div>
      ))}
    </div>
  );
}
