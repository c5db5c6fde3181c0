import { beforeEach, expect, test, vi } from "vitest";

import { ApiError, api, AwayError, call } from "../../../src/api/client";
import { connection } from "../../../src/api/connection";
import { send, type Progress } from "../../../src/pages/submit/send";
import type { FromWorker } from "../../../src/pages/submit/zip.worker";

vi.mock("../../../src/api/client", async (original) => ({
  ...(await original<typeof import("../../../src/api/client")>()),
  api: { POST: vi.fn() },
  call: vi.fn(),
}));

const ZIP = new Blob(["zip"]);
const HASH = "ab".repeat(32);

/** What the worker that packs the code says. */
let said: FromWorker[];
let workers: { ended: boolean }[];
/** How the server answers an upload; null: the connection breaks off. */
let answer: { status: number; text: string } | null;
let uploads: { method: string; path: string; headers: Map<string, string>; sent: unknown }[];
let steps: Progress[];

class FakeWorker {
  ended = false;
  onmessage: (event: { data: FromWorker }) => void = () => {};
  constructor() {
    workers.push(this);
  }
  postMessage() {
    queueMicrotask(() => said.forEach((data) => this.onmessage({ data })));
  }
  terminate() {
    this.ended = true;
  }
}

class FakeRequest {
  readonly upload: { onprogress: (event: { loaded: number; total: number }) => void } = { onprogress: () => {} };
  readonly headers = new Map<string, string>();
  status = 0;
  responseText = "";
  onload = () => {};
  onerror = () => {};
  private method = "";
  private path = "";
  open(method: string, path: string) {
    [this.method, this.path] = [method, path];
  }
  setRequestHeader(name: string, value: string) {
    this.headers.set(name, value);
  }
  send(sent: unknown) {
    uploads.push({ method: this.method, path: this.path, headers: this.headers, sent });
    this.upload.onprogress({ loaded: 1, total: 4 });
    queueMicrotask(() => {
      if (answer === null) return this.onerror();
      [this.status, this.responseText] = [answer.status, answer.text];
      this.onload();
    });
  }
}

beforeEach(() => {
  vi.stubGlobal("Worker", FakeWorker);
  vi.stubGlobal("XMLHttpRequest", FakeRequest);
  vi.spyOn(connection, "lost").mockImplementation(() => {});
  vi.mocked(api.POST).mockResolvedValue({ data: { id: "job-1" } } as never);
  vi.mocked(call).mockRejectedValue(new ApiError(404, {}));
  said = [
    { kind: "progress", files: 1 },
    { kind: "done", zip: ZIP, sha256: HASH },
  ];
  workers = [];
  answer = { status: 201, text: "{}" };
  uploads = [];
  steps = [];
});

const code = { kind: "folder" as const, name: "code", files: [1, 2].map(() => ({}) as never), left: 0 };
const submit = (changes: Partial<Parameters<typeof send>[0]> = {}) =>
  send({ manifest: "name: test", code, rerunOf: undefined, fromCheckpoint: false, ...changes }, (step) =>
    steps.push(step),
  );

test("code that the server lacks is packed, sent and named by the new job", async () => {
  expect(await submit()).toEqual({ id: "job-1" });
  expect(steps).toEqual([
    { words: "Packing the code …" },
    { words: "Packing the code …", share: 0.5 },
    { words: "Sending the code …", share: 0.25 },
    { words: "Submitting …" },
  ]);
  expect(uploads).toMatchObject([{ method: "PUT", path: `/api/v1/code/${HASH}`, sent: ZIP }]);
  expect(uploads[0]?.headers.get("X-Weft-Session")).toBe("1");
  const body = { manifest: "name: test", code_sha256: HASH };
  expect(api.POST).toHaveBeenCalledWith("/api/v1/jobs", { body });
  expect(workers.map((worker) => worker.ended)).toEqual([true]);
});

test("code that the server has is not sent again", async () => {
  vi.mocked(call).mockResolvedValue(new Response());
  await submit();
  expect(call).toHaveBeenCalledWith(`/api/v1/code/${HASH}`, { method: "HEAD" });
  expect(uploads).toEqual([]);
});

test("without a hash, manifest and code go together, under a key of their own", async () => {
  said = [{ kind: "done", zip: ZIP, sha256: null }];
  answer = { status: 201, text: '{"id": "job-2"}' };
  expect(await submit()).toEqual({ id: "job-2" });
  expect(uploads).toMatchObject([{ method: "POST", path: "/api/v1/jobs" }]);
  expect(uploads[0]?.headers.get("Idempotency-Key")).toMatch(/^[0-9a-f]{32}$/);
  const form = uploads[0]?.sent as FormData;
  expect(form.get("manifest")).toBe("name: test");
  expect(form.get("code")).toBeInstanceOf(Blob);
  expect(api.POST).not.toHaveBeenCalled();
});

test("a rerun without code of its own takes the other job's", async () => {
  await submit({ code: null, rerunOf: "job-0", fromCheckpoint: true });
  expect(workers).toEqual([]);
  expect(api.POST).toHaveBeenCalledWith("/api/v1/jobs/{job_id}/rerun", {
    params: { path: { job_id: "job-0" } },
    body: { manifest: "name: test", code_sha256: null, from_checkpoint: true },
  });
});

test("what the server refuses is its problem's text, or its status", async () => {
  answer = { status: 413, text: '{"detail": "the code has more than 2 GiB"}' };
  await expect(submit()).rejects.toMatchObject({ status: 413, message: "the code has more than 2 GiB" });
  answer = { status: 502, text: "<html>" };
  await expect(submit()).rejects.toThrow("the API answered 502");
  expect(api.POST).not.toHaveBeenCalled();
});

test("a connection that breaks off is lost for the whole page", async () => {
  answer = null;
  await expect(submit()).rejects.toBeInstanceOf(AwayError);
  expect(connection.lost).toHaveBeenCalledOnce();
});

test("code that can't be packed is an error, and the worker ends", async () => {
  said = [{ kind: "failed", message: "a.bin can't be read" } as FromWorker];
  await expect(submit()).rejects.toThrow("The code could not be packed: a.bin can't be read");
  expect(workers.map((worker) => worker.ended)).toEqual([true]);
});

test("another error than 404 of the look-up ends the submission", async () => {
  vi.mocked(call).mockRejectedValue(new ApiError(403, { detail: "a viewer can't submit" }));
  await expect(submit()).rejects.toThrow("a viewer can't submit");
  expect(uploads).toEqual([]);
});
