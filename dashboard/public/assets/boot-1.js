// Loads the document again when one of its scripts or styles has not come: a request that waits for a connection fails
// when the machine's network changes, and without its scripts the page could not even say so. Runs before all of them.
// Browsers keep this file for good: give it another name when it changes.
(() => {
  const KEY = "weft.reloads";
  const MOST = 5;
  const count = () => Number(sessionStorage.getItem(KEY)) || 0;

  const reload = () =>
    fetch("/readyz", { cache: "no-store" }).then(
      () => location.reload(),
      () => setTimeout(reload, 2000),
    );
  let over = false;
  const fail = (event) => {
    if (over || !event.target.matches?.("script, link[rel=stylesheet]")) return;
    over = true;
    if (count() >= MOST) {
      (document.body ?? document.documentElement).append("A part of Weft's page can't be loaded. Load it again, or ask your administrator.");
      return;
    }
    sessionStorage.setItem(KEY, String(count() + 1));
    setTimeout(reload, 250 * 2 ** count());
  };
  addEventListener("error", fail, true);
  addEventListener("load", () => {
    over = true; // what is loaded from now on, the page's own code loads again by itself
    setTimeout(() => sessionStorage.removeItem(KEY), 60_000);
  });
})();
