// Where a text of a user may lead.

/** The address of a link that is safe to follow; null for all but the web and mail. */
export function addressOf(href: string): string | null {
  try {
    const { protocol } = new URL(href);
    return ["http:", "https:", "mailto:"].includes(protocol) ? href : null;
  } catch {
    return null; // relative to a place that the page does not know
  }
}
