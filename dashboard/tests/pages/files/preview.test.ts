import { expect, test, vi } from "vitest";

import { ApiError, call } from "../../../src/api/client";
import { codeUrl, fileUrl, firstShown, isImage, loadPreview, pretty } from "../../../src/pages/files/preview";

vi.mock("../../../src/api/client", async (original) => ({ ...(await original<object>()), call: vi.fn() }));

const { signal } = new AbortController();
const response = (body: string, headers: Record<string, string>) =>
  vi.mocked(call).mockResolvedValueOnce(new Response(body, { headers }));

test("a path keeps its slashes in a URL, and nothing else", () => {
  expect(fileUrl("job-1", "a b/c#d?e%.txt")).toBe("/api/v1/jobs/job-1/files/a%20b/c%23d%3Fe%25.txt");
  expect(codeUrl("job-1", "lib/ü.py")).toBe("/api/v1/jobs/job-1/code/lib/%C3%BC.py");
});

test("JSON is indented; JSON that is broken, and other text, is left as it is", () => {
  expect(pretty('{"a":[1]}', "metrics.JSON")).toBe('{\n  "a": [\n    1\n  ]\n}');
  expect(pretty('{"a":', "a.json")).toBe('{"a":');
  expect(pretty('{"a":1}', "a.jsonl")).toBe('{"a":1}');
});

test("a text says whether it is only the beginning", async () => {
  response("abc", { "content-type": "text/plain", "x-weft-truncated": "true" });
  expect(await loadPreview("/f", signal)).toEqual({ kind: "text", text: "abc", cut: true });
  response("abc", { "content-type": "text/plain" });
  expect(await loadPreview("/f", signal)).toEqual({ kind: "text", text: "abc", cut: false });
});

test("an image is shown, unless it is too large", async () => {
  response("x", { "content-type": "image/png", "content-length": "1" });
  expect(await loadPreview("/f", signal)).toMatchObject({ kind: "image" });
  response("x", { "content-type": "image/png", "content-length": String((32 << 20) + 1) });
  expect(await loadPreview("/f", signal)).toMatchObject({ kind: "none" });
});

test("a file that has no preview says why; another error is an error", async () => {
  vi.mocked(call).mockRejectedValueOnce(new ApiError(415, { detail: "a binary file" }));
  expect(await loadPreview("/f", signal)).toEqual({ kind: "none", why: "a binary file" });
  vi.mocked(call).mockRejectedValueOnce(new ApiError(404, { detail: "no such file" }));
  await expect(loadPreview("/f", signal)).rejects.toThrow("no such file");
});

test("the first file that is shown tells most", () => {
  const first = (...paths: string[]) => firstShown(paths.map((path) => ({ path })))?.path;
  expect(first("model.pt", "plots/loss.png", "summary.json")).toBe("summary.json");
  expect(first("model.pt", "a/README.md", "readme.md")).toBe("readme.md");
  expect(first("model.pt", "plots/loss.png")).toBe("plots/loss.png");
  expect(first("model.pt", "b.bin")).toBe("model.pt");
  expect(first()).toBeUndefined();
});

test("what the API sends as images", () => {
  expect(["a.PNG", "b.jpeg", "c.svg", "png"].map(isImage)).toEqual([true, true, false, false]);
});
