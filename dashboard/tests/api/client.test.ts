import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { ApiError, AwayError, call, json, whenSignedOut } from "../../src/api/client";
import { connection } from "../../src/api/connection";

const JOBS = "http://weft.test/api/v1/jobs";
const problem = (status: number, content: object) =>
  new Response(JSON.stringify(content), { status, headers: { "Content-Type": "application/problem+json" } });
const answer = (response: Response) =>
  vi.fn<(request: Request) => Promise<Response>>(() => Promise.resolve(response));

beforeEach(() => {
  vi.spyOn(connection, "lost").mockImplementation(() => {});
});
afterEach(() => whenSignedOut(() => {}));

test("a read carries neither the session's header nor an idempotency key", async () => {
  const fetch = answer(new Response("{}"));
  vi.stubGlobal("fetch", fetch);
  await call(JOBS);
  const sent = fetch.mock.calls[0]?.[0];
  expect(sent?.headers.has("X-Weft-Session")).toBe(false);
  expect(sent?.headers.has("Idempotency-Key")).toBe(false);
});

test("each POST has a key of its own, and a key that was given stays", async () => {
  const fetch = answer(new Response("{}"));
  vi.stubGlobal("fetch", fetch);
  await call(JOBS, { method: "POST" });
  await call(JOBS, { method: "POST" });
  await call(JOBS, { method: "POST", headers: { "Idempotency-Key": "mine" } });
  await call(JOBS, { method: "DELETE" });
  const [first, second, third, deletion] = fetch.mock.calls.map(([request]) => request.headers);
  expect(first?.get("X-Weft-Session")).toBe("1");
  expect(first?.get("Idempotency-Key")).toMatch(/^[0-9a-f]{32}$/);
  expect(second?.get("Idempotency-Key")).not.toBe(first?.get("Idempotency-Key"));
  expect(third?.get("Idempotency-Key")).toBe("mine");
  expect(deletion?.get("X-Weft-Session")).toBe("1");
  expect(deletion?.has("Idempotency-Key")).toBe(false);
});

test("an error of the API has its code, title and problems", async () => {
  const problems = [{ path: "learners", message: "must be at least 1", found: "0", accepted: "1 or more", line: 2 }];
  const content = { code: "manifest_invalid", title: "Not valid", problems };
  vi.stubGlobal("fetch", answer(problem(422, { ...content, detail: "1 problem" })));
  const error: unknown = await call(JOBS).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(ApiError);
  expect(error).toMatchObject({ ...content, status: 422, message: "1 problem" });
  expect(connection.lost).not.toHaveBeenCalled();
});

test("an error without a readable body is an ApiError with its status", async () => {
  vi.stubGlobal("fetch", answer(new Response("<html>", { status: 500 })));
  await expect(call(JOBS)).rejects.toMatchObject({ status: 500, code: "unknown", message: "the API answered 500" });
});

test.each([
  ["no answer", () => Promise.reject(new TypeError("Failed to fetch"))],
  ["a proxy's 502", () => Promise.resolve(new Response("Bad Gateway", { status: 502 }))],
  ["an API without its database", () => Promise.resolve(problem(503, { code: "database_unavailable" }))],
])("%s means that the connection is lost", async (_, fetch) => {
  vi.stubGlobal("fetch", fetch);
  await expect(call(JOBS)).rejects.toBeInstanceOf(AwayError);
  expect(connection.lost).toHaveBeenCalledOnce();
});

test("another 503 of the API is an ordinary error", async () => {
  vi.stubGlobal("fetch", answer(problem(503, { code: "engine_unreachable", detail: "the engine does not answer" })));
  await expect(call(JOBS)).rejects.toBeInstanceOf(ApiError);
  expect(connection.lost).not.toHaveBeenCalled();
});

test("a call that the page gave up says nothing about the connection", async () => {
  const gone = new AbortController();
  gone.abort();
  vi.stubGlobal("fetch", (request: Request) => Promise.reject(request.signal.reason as Error));
  await expect(call(JOBS, { signal: gone.signal })).rejects.toMatchObject({ name: "AbortError" });
  expect(connection.lost).not.toHaveBeenCalled();
});

test("a read that gets no answer is given up, and means that the connection is lost", async () => {
  vi.useFakeTimers();
  const silent = (_: Request, { signal }: RequestInit) =>
    new Promise<Response>((_, refuse) => signal!.addEventListener("abort", () => refuse(signal!.reason as Error)));
  vi.stubGlobal("fetch", silent);
  const error = call(JOBS).catch((thrown: unknown) => thrown);
  await vi.advanceTimersByTimeAsync(30_000);
  expect(await error).toBeInstanceOf(AwayError);
  expect(connection.lost).toHaveBeenCalledOnce();
  vi.useRealTimers();
});

test("a 401 signs the page out, except where the page only asks whether there is a session", async () => {
  const signedOut = vi.fn();
  whenSignedOut(signedOut);
  vi.stubGlobal("fetch", () => Promise.resolve(problem(401, { code: "unauthenticated" })));
  await expect(call("http://weft.test/api/v1/session")).rejects.toBeInstanceOf(ApiError);
  expect(signedOut).not.toHaveBeenCalled();
  await expect(call(JOBS)).rejects.toBeInstanceOf(ApiError);
  expect(signedOut).toHaveBeenCalledOnce();
});

test("json() sends JSON, and returns nothing for a 204", async () => {
  const Absolute = class extends Request {
    constructor(input: Request | string, init?: RequestInit) {
      super(typeof input === "string" ? new URL(input, "http://weft.test") : input, init);
    }
  };
  const fetch = answer(new Response(null, { status: 204 }));
  vi.stubGlobal("fetch", fetch);
  vi.stubGlobal("Request", Absolute);
  expect(await json("/session/project", "PUT", { project: "vision" })).toBeUndefined();
  const sent = fetch.mock.calls[0]?.[0] as Request;
  expect([sent.method, sent.url]).toEqual(["PUT", "http://weft.test/api/v1/session/project"]);
  expect(sent.headers.get("Content-Type")).toBe("application/json");
  expect(await sent.json()).toEqual({ project: "vision" });
});
