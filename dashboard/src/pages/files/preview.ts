// What of a file can be shown. The API looks at it: images come as what they are, all else as the beginning of a text.
import { ApiError, call } from "../../api/client";

export type Preview =
  | { kind: "text"; text: string; cut: boolean }
  | { kind: "image"; blob: Blob }
  | { kind: "none"; why: string };

const MOST_IMAGE = 32 << 20;

const encoded = (path: string) => path.split("/").map(encodeURIComponent).join("/");
export const fileUrl = (jobId: string, path: string) =>
  `/api/v1/jobs/${encodeURIComponent(jobId)}/files/${encoded(path)}`;
export const codeUrl = (jobId: string, path: string) =>
  `/api/v1/jobs/${encodeURIComponent(jobId)}/code/${encoded(path)}`;

export async function loadPreview(url: string, signal: AbortSignal): Promise<Preview> {
  let response: Response;
  try {
    response = await call(url, { signal });
  } catch (error) {
    if (error instanceof ApiError && error.status === 415) return { kind: "none", why: error.message };
    throw error;
  }
  if (response.headers.get("content-type")?.startsWith("image/")) {
    if (Number(response.headers.get("content-length")) > MOST_IMAGE) {
      await response.body?.cancel();
      return { kind: "none", why: "The image is too large to be shown here." };
    }
    return { kind: "image", blob: await response.blob() };
  }
  return { kind: "text", text: await response.text(), cut: response.headers.get("x-weft-truncated") === "true" };
}

const IMAGE = /\.(png|jpe?g|gif|webp|bmp)$/i;
/** The API sends it as an image. */
export const isImage = (path: string) => IMAGE.test(path);

// What tells most about a job, first; then texts and images before what can't be shown.
const FIRST = [/^readme\.md$/i, /(^|\/)readme\.md$/i, /\.md$/i, /\.json$/i, /\.(csv|tsv)$/i, IMAGE, /\.(txt|ya?ml|log|py)$/i];

/** The file that is shown while none is chosen. */
export function firstShown<T extends { path: string }>(files: readonly T[]): T | undefined {
  for (const pattern of FIRST) {
    const found = files.find((file) => pattern.test(file.path));
    if (found) return found;
  }
  return files[0];
}

/** JSON, indented; anything else as it is. */
export function pretty(text: string, name: string): string {
  if (!/\.json$/i.test(name)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
