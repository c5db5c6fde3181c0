// What the page of a data store shows, which is all in its URL: a container, a folder of it, and an object.
import { text } from "../../app/urls";

export interface Place {
  container?: string | undefined;
  /** "" or a text that ends with a slash. */
  prefix?: string | undefined;
  /** The object that is shown. */
  key?: string | undefined;
}

export function readPlace(search: Record<string, unknown>): Place {
  const container = text(search["container"]);
  if (!container) return {};
  const prefix = text(search["prefix"]);
  const key = text(search["key"]);
  return { container, ...(prefix && { prefix }), ...(key && { key }) };
}

/** The folders from the container down to this one: their names and places. */
export function steps({ container, prefix = "" }: Place): { name: string; place: Place }[] {
  if (!container) return [];
  const names = prefix.split("/").slice(0, -1);
  return [
    { name: container, place: { container } },
    ...names.map((name, at) => ({ name, place: { container, prefix: `${names.slice(0, at + 1).join("/")}/` } })),
  ];
}

/** The last part of an object's key or of a folder's prefix. */
export const nameIn = (key: string, prefix: string) => (key.startsWith(prefix) ? key.slice(prefix.length) : key);

export function previewUrl(store: string, container: string, key: string): string {
  return `/api/v1/datastores/${encodeURIComponent(store)}/objects:preview?${new URLSearchParams({ container, key })}`;
}
