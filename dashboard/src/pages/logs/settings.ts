import { useState } from "react";

/** A switch that this browser remembers. */
export function useSetting(name: string): [boolean, (on: boolean) => void] {
  const key = `weft-log-${name}`;
  const [on, setOn] = useState(() => {
    try {
      return localStorage.getItem(key) === "1";
    } catch {
      return false;
    }
  });
  return [
    on,
    (value) => {
      setOn(value);
      try {
        localStorage.setItem(key, value ? "1" : "0");
      } catch {
        // it holds for this page then
      }
    },
  ];
}
