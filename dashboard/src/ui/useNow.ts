import { useEffect, useState } from "react";

/** The time in ms since 1970, updated each second while `on`: for spans that have not ended. */
export function useNow(on = true): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!on) return;
    const timer = window.setInterval(() => setNow(Date.now()), 1000);
    return () => window.clearInterval(timer);
  }, [on]);
  return now;
}
