// Paths in a text of a user.

/** The path of a file that `href` in the file `from` stands for; null if it leaves the folder or the site. */
export function neighbour(from: string, href: string): string | null {
  if (/^[a-z][a-z0-9+.-]*:|^\/|^#/i.test(href)) return null;
  const parts = from.split("/").slice(0, -1);
  for (const part of decoded(href.replace(/[?#].*$/, "")).split("/")) {
    if (part === "..") {
      if (parts.pop() === undefined) return null;
    } else if (part !== "." && part !== "") parts.push(part);
  }
  return parts.length ? parts.join("/") : null;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
