// Code and manifest on their way to the API.
import { ApiError, AwayError, call, idempotencyKey } from "../../api/client";
import { connection } from "../../api/connection";
import type { Job, Problem } from "../../api/types";
import type { Picked } from "./folder";
import type { FromWorker } from "./zip.worker";

export interface Bundle {
  zip: Blob;
  sha256: string | null;
}

/** Zip files (or hash a zip that is there) in a worker. */
export function bundle(
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
export async function hasCode(sha256: string): Promise<boolean> {
  try {
    await call(`/api/v1/code/${sha256}`, { method: "HEAD" });
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return false;
    throw error;
  }
}

/** fetch() can't tell how much has been sent. */
function send<T>(method: string, path: string, sent: Blob | FormData, progress: (share: number) => void): Promise<T> {
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

export const sendCode = (bundle: { zip: Blob; sha256: string }, progress: (share: number) => void) =>
  send<unknown>("PUT", `/api/v1/code/${bundle.sha256}`, bundle.zip, progress);

/** The way without a hash: code and manifest together. */
export function sendAll(manifest: string, zip: Blob, progress: (share: number) => void): Promise<Job> {
  const form = new FormData();
  form.append("manifest", manifest);
  form.append("code", zip, "code.zip");
  return send<Job>("POST", "/api/v1/jobs", form, progress);
}
