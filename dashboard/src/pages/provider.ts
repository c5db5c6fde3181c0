// What a sign-in at an identity provider keeps in this tab, and what the provider sends back with the browser.
const NEXT = "weft-sign-in-next";

/** A path of this page only: `//elsewhere` would lead to another host. */
export function ownPath(next: unknown): string | undefined {
  return typeof next === "string" && /^\/(?![/\\])/.test(next) ? next : undefined;
}

/** Where to go on after the provider has sent the browser back. */
export function rememberNext(next: string | undefined) {
  if (next) window.sessionStorage.setItem(NEXT, next);
  else window.sessionStorage.removeItem(NEXT);
}

export function takeNext(): string {
  const next = ownPath(window.sessionStorage.getItem(NEXT));
  window.sessionStorage.removeItem(NEXT);
  return next ?? "/";
}

export interface Returned {
  code: string;
  state: string;
  issuer: string | null;
}

/** What the provider has answered, or why it has not signed anybody in. Anybody can write a link to this page, so no
 * text of the URL is shown but an error's code. */
export function readReturned(search: string): Returned | { refused: string } {
  const found = new URLSearchParams(search);
  const [code, state, error] = [found.get("code"), found.get("state"), found.get("error")];
  if (error === "access_denied") return { refused: "The identity provider has refused the sign-in." };
  if (error !== null) {
    const known = /^[a-z_]{1,40}$/.test(error) ? ` (${error})` : "";
    return { refused: `The identity provider could not sign you in${known}.` };
  }
  if (!code || !state) return { refused: "This page is where an identity provider sends you back after a sign-in." };
  return { code, state, issuer: found.get("iss") };
}
