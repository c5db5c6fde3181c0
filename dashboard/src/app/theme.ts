// Light, dark, or as the system has it. The choice is kept in this browser.
import { useState } from "react";

export type Theme = "system" | "light" | "dark";
const KEY = "weft-theme";
const ORDER: Theme[] = ["system", "light", "dark"];

function stored(): Theme {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system"; // storage may be forbidden
  }
}

export function applyTheme(theme: Theme = stored()) {
  if (theme === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme;
}

export function useTheme(): [Theme, () => void] {
  const [theme, setTheme] = useState(stored);
  const turn = () => {
    const following = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length] ?? "system";
    try {
      localStorage.setItem(KEY, following);
    } catch {
      // it holds for this page then
    }
    applyTheme(following);
    setTheme(following);
  };
  return [theme, turn];
}
