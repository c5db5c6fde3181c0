// The one way to the API: typed by its OpenAPI document, signed in by the session's cookie, errors as ApiError.
import createClient from "openapi-fetch";

import { connection } from "./connection";
import type { paths } from "./schema";
import type { FieldProblem, Problem } from "./types";

/** The API said no. `code` is stable; `message` is for people; `problems` says what is wrong where. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly title: string;
  readonly problems: readonly FieldProblem[];

  constructor(status: number, problem: Partial<Problem>) {
    super(problem.detail ?? `the API answered ${status}`);
    this.status = status;
    this.code = problem.code ?? "unknown";
    this.title = problem.title ?? "The API refused";
    this.problems = problem.problems ?? [];
  }
}

/** No answer at all, or one that says that a part behind the API is away: it is tried again by itself. */
export class AwayError extends Error {}

const AWAY = new Set(["database_unavailable"]);
const READS = new Set(["GET", "HEAD"]);
const PATIENCE = 30_000; // ms until the answer to a read begins

let onSignedOut = () => {};
/** What to do when the API says that there is no session (any more). */
export function whenSignedOut(action: () => void) {
  onSignedOut = action;
}

/** fetch() with what every call needs. Throws AwayError and ApiError; answers have been accepted by the API. */
export async function call(input: Request | string, init?: RequestInit): Promise<Response> {
  const request = new Request(input, { credentials: "same-origin", ...init });
  if (!READS.has(request.method)) {
    // Nobody else's page can send this one, so nobody else's page can act for the signed-in user.
    request.headers.set("X-Weft-Session", "1");
    if (request.method === "POST" && !request.headers.has("Idempotency-Key")) {
      request.headers.set("Idempotency-Key", idempotencyKey());
    }
  }
  const response = await answer(request);
  if (response.ok) return response;
  const problem = await readProblem(response);
  if (AWAY.has(problem.code ?? "") || (response.status >= 502 && problem.code === undefined)) {
    connection.lost();
    throw new AwayError(problem.detail ?? "The API does not answer.");
  }
  if (response.status === 401 && !new URL(request.url).pathname.endsWith("/session")) onSignedOut();
  throw new ApiError(response.status, problem);
}

/** A stopped API accepts connections and never answers, so a read waits for a limited time. A write may take longer. */
async function answer(request: Request): Promise<Response> {
  const late = new AbortController();
  const timer = READS.has(request.method) ? setTimeout(() => late.abort(), PATIENCE) : undefined;
  try {
    return await fetch(request, { signal: AbortSignal.any([request.signal, late.signal]) });
  } catch (error) {
    if (request.signal.aborted) throw error;
    connection.lost();
    throw new AwayError("The API does not answer.");
  } finally {
    clearTimeout(timer);
  }
}

async function readProblem(response: Response): Promise<Partial<Problem>> {
  if (!response.headers.get("content-type")?.includes("json")) return {};
  try {
    return (await response.json()) as Problem;
  } catch {
    return {};
  }
}

export const api = createClient<paths>({ baseUrl: "", fetch: (request) => call(request) });

/** The body of an answer that `api` gave: what is not there has been thrown before. */
export async function body<T>(answer: Promise<{ data?: T }>): Promise<T> {
  return (await answer).data as T;
}

/** For the few calls that the OpenAPI document has no types for. */
export async function json<T>(path: string, method = "GET", sent?: unknown, signal?: AbortSignal): Promise<T> {
  const init: RequestInit = { method };
  if (signal) init.signal = signal;
  if (sent !== undefined) {
    init.body = JSON.stringify(sent);
    init.headers = { "Content-Type": "application/json" };
  }
  const response = await call(`/api/v1${path}`, init);
  return (response.status === 204 ? undefined : await response.json()) as T;
}

/** crypto.randomUUID() is only there on https and localhost. */
export function idempotencyKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
