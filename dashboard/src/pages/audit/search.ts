// What the page of the audit trail shows is all in its URL.
import { text } from "../../app/urls";

export const OUTCOMES = ["allowed", "refused", "failed"] as const;
type Outcome = (typeof OUTCOMES)[number];

export interface AuditSearch {
  user?: string;
  action?: string;
  object?: string;
  project?: string;
  since?: string;
  until?: string;
  outcome?: Outcome;
}

const TEXTS = ["user", "action", "object", "project", "since", "until"] as const;

export function readAuditSearch(search: Record<string, unknown>): AuditSearch {
  const found: AuditSearch = {};
  for (const name of TEXTS) {
    const given = text(search[name]);
    if (given) found[name] = given;
  }
  const outcome = OUTCOMES.find((known) => known === search["outcome"]);
  if (outcome) found.outcome = outcome;
  return found;
}
