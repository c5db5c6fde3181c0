import { type ReactNode, useEffect, useRef } from "react";

/** A button with what it opens below it. A click elsewhere and Escape close it. */
export function Popover({ name, className = "", children }: { name: string; className?: string; children: ReactNode }) {
  const details = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const close = (event: Event) => {
      const element = details.current;
      if (!element?.open) return;
      if (event instanceof KeyboardEvent ? event.key === "Escape" : !element.contains(event.target as Node)) element.open = false;
    };
    window.addEventListener("pointerdown", close);
    window.addEventListener("keydown", close);
    return () => {
      window.removeEventListener("pointerdown", close);
      window.removeEventListener("keydown", close);
    };
  }, []);
  return (
    <details className="popover" ref={details}>
      <summary className="button">{name}</summary>
      <div className={`popover-body stack ${className}`}>{children}</div>
    </details>
  );
}
