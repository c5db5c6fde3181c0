import { text, whole } from "../../app/urls";

export interface ProfilesSearch {
  /** The chosen profile, file and thread (from 0). */
  profile?: string | undefined;
  file?: string | undefined;
  thread?: number | undefined;
}

export function readProfilesSearch(search: Record<string, unknown>): ProfilesSearch {
  return { profile: text(search["profile"]), file: text(search["file"]), thread: whole(search["thread"]) };
}
