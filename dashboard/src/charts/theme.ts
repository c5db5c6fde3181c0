// A canvas does not follow the style sheet by itself.
import { useEffect, useState } from "react";

/** Counts how often the page turned light or dark. */
export function useThemeTurns(): number {
  const [turns, setTurns] = useState(0);
  useEffect(() => {
    const turn = () => setTurns((before) => before + 1);
    const system = window.matchMedia("(prefers-color-scheme: dark)");
    system.addEventListener("change", turn);
    const chosen = new MutationObserver(turn);
    chosen.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    return () => {
      system.removeEventListener("change", turn);
      chosen.disconnect();
    };
  }, []);
  return turns;
}
