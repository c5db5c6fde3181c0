// Code and manifest on their way to the API.
import { ApiError, api, AwayError, body, call, idempotencyKey } from "../../api/client";
import { connection } from "../../api/connection";
import type { Job, Problem } from "../../api/types";
import type { Chosen } from "./Code";
import type { Picked } from "./folder";
import type { FromWorker } from "./zip.worker";

interface Submission {
  manifest: string;
  code: Chosen | null;
  /** A job whose code and credentials it has where it brings none of its own. */
  rerunOf: string | undefined;
  fromCheckpoint: boolean;
}
export interface Progress {
  words: string;
  share?: number;
}

/** Pack, send what the server does not have, and make the job. */
export async function send({ manifest, code, rerunOf, fromCheckpoint }: Submission, tell: (step: Progress) => void) {
  let sha256: string | null = null;
  if (code) {
    tell({ words: "Packing the code …" });
    const total = code.kind === "folder" ? code.files.length : 1;
    const from = code.kind === "folder" ? { files: code.files } : { zip: code.file };
    const packed = await bundle(from, (files) => tell({ words: "Packing the code …", share: files / total }));
    const progress = (share: number) => tell({ words: "Sending the code …", share });
    if (packed.sha256 === null) return sendAll(manifest, packed.zip, progress);
    sha256 = packed.sha256;
    if (!(await hasCode(sha256))) await sendCode({ zip: packed.zip, sha256 }, progress);
  }
  tell({ words: "Submitting …" });
  const sent = { manifest, code_sha256: sha256 };
  const made = rerunOf
    ? api.POST("/api/v1/jobs/{job_id}/rerun", {
        params: { path: { job_id: rerunOf } },
        body: { ...sent, from_checkpoint: fromCheckpoint },
      })
    : api.POST("/api/v1/jobs", { body: sent as never });
  return body(made) as Promise<Job>;
}

interface Bundle {
  zip: Blob;
  sha256: string | null;
}

/** Zip files (or hash a zip that is there) in a worker. */
function bundle(
  from: { files: readonly Picked[] } | { zip: Blob },
  progress: (files: number) => void,
): Promise<Bundle> {
  const worker = new Worker(new URL("./zip.worker.ts", import.meta.url), { type: "module" });
  return new Promise<Bundle>((done, failed) => {
    worker.onmessage = ({ data }: MessageEvent<FromWorker>) => {
      if (data.kind === "progress") progress(data.files);
      else if (data.kind === "done") done(data);
      else failed(new Error(`The code could not be packed: ${data.message}`));
    };
    worker.onerror = (event) => failed(new Error(`The code could not be packed: ${event.message || "no worker"}`));
    worker.postMessage(from);
  }).finally(() => worker.terminate());
}

/** Whether the server has this code: then it is not sent again. */
async function hasCode(sha256: string): Promise<boolean> {
  try {
    await call(`/api/v1/code/${sha256}`, { method: "HEAD" });
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return false;
    throw error;
  }
}

/** fetch() can't tell how much has been sent. */
function upload<T>(method: string, path: string, sent: Blob | FormData, progress: (share: number) => void): Promise<T> {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    request.open(method, path);
    request.setRequestHeader("X-Weft-Session", "1");
    if (method === "POST") request.setRequestHeader("Idempotency-Key", idempotencyKey());
    if (sent instanceof Blob) request.setRequestHeader("Content-Type", "application/zip");
    request.upload.onprogress = ({ loaded, total }) => progress(total ? loaded / total : 0);
    request.onerror = () => {
      connection.lost();
      failed(new AwayError("The connection broke off while the code was sent."));
    };
    request.onload = () => {
      let answer: unknown = {};
      try {
        answer = JSON.parse(request.responseText);
      } catch {
        // the status says it then
      }
      if (request.status < 300) done(answer as T);
      else failed(new ApiError(request.status, answer as Partial<Problem>));
    };
    request.send(sent);
  });
}

const sendCode = (bundle: { zip: Blob; sha256: string }, progress: (share: number) => void) =>
  upload<unknown>("PUT", `/api/v1/code/${bundle.sha256}`, bundle.zip, progress);

/** The way without a hash: code and manifest together. */
function sendAll(manifest: string, zip: Blob, progress: (share: number) => void): Promise<Job> {
  const form = new FormData();
  form.append("manifest", manifest);
  form.append("code", zip, "code.zip");
  return upload<Job>("POST", "/api/v1/jobs", form, progress);
}
