import { useEffect } from "react";

/** Sets the title of the browser's window. */
export function useTitle(title: string) {
  useEffect(() => {
    document.title = `${title} · Weft`;
  }, [title]);
}
