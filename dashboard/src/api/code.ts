// The code of a page or of a part of it, loaded when it is first shown.
import { connection } from "./connection";

/** Loads with `load`. While the API is away it waits, as loading the document again would leave nothing on the screen. */
export const code =
  <T>(load: () => Promise<T>) =>
  () =>
    load().catch(async () => {
      await connection.there();
      askForStylesAgain();
      return load();
    });

// Vite asks for the style sheet of a chunk only once, and takes it for loaded even when it was not.
const lost = new Set<HTMLLinkElement>();
window.addEventListener(
  "error",
  ({ target }) => void (target instanceof HTMLLinkElement && target.rel === "stylesheet" && lost.add(target)),
  true,
);

function askForStylesAgain() {
  for (const link of lost) link.replaceWith(link.cloneNode());
  lost.clear();
}
