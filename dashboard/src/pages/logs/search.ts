import { text, whole } from "../../app/urls";
import { LEVELS } from "./levels";

/** What a log's page shows is in its URL, so that a line or a search can be sent to others. */
export interface LogSearch {
  line?: number;
  learner?: number;
  attempt?: number;
  q?: string;
  regex?: boolean;
  case?: boolean;
  /** Only the lines that the search finds. */
  only?: boolean;
  /** Only lines of this level and graver ones. */
  level?: (typeof LEVELS)[number];
}

const flag = (value: unknown) => value === "true" || value === true || value === "1";

export function readLogSearch(search: Record<string, unknown>): LogSearch {
  const found: LogSearch = {};
  const line = whole(search["line"]);
  if (line !== undefined) found.line = line;
  const learner = whole(search["learner"]);
  if (learner) found.learner = learner;
  const attempt = whole(search["attempt"]);
  if (attempt) found.attempt = attempt;
  const q = text(search["q"]);
  if (q) found.q = q;
  if (flag(search["regex"])) found.regex = true;
  if (flag(search["case"])) found.case = true;
  if (flag(search["only"])) found.only = true;
  const level = LEVELS.find((level) => level === search["level"]);
  if (level) found.level = level;
  return found;
}
