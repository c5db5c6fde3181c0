import { expect, test } from "vitest";

import { profileId, record } from "../../../src/pages/profiles/record";
import { encodeJson, encode, Frame } from "../../../src/shell/frames";
import type { Socket } from "../../../src/shell/tunnel";

const REQUEST = { profile: "20260131-081500-4f2a", steps: 10, seconds: null };

function dialogue() {
  const sent: Uint8Array[] = [];
  const socket = { send: (data: Uint8Array) => sent.push(data), close: () => undefined } as unknown as Socket;
  const said: string[] = [];
  const stored = record(socket, REQUEST, (text) => said.push(text));
  const hear = (message: Uint8Array) =>
    socket.onmessage?.call(socket as WebSocket, { data: message.buffer } as MessageEvent);
  return { socket, sent, said, stored, hear };
}

test("an id begins with the time", () => {
  expect(profileId(new Date("2026-01-31T08:15:00.123Z"), 0.5)).toBe("20260131-081500-8000");
  expect(profileId(new Date("2026-01-31T08:15:00Z"), 0)).toBe("20260131-081500-0000");
});

test("a recording says what it does, and what is missing", async () => {
  const { socket, sent, said, stored, hear } = dialogue();
  socket.onopen?.call(socket as WebSocket, {} as globalThis.Event);
  expect(sent).toEqual([encodeJson(Frame.OPEN, REQUEST)]);
  hear(encode(Frame.OUTPUT, new TextEncoder().encode("py-spy records 1 process\n")));
  hear(encodeJson(Frame.END, { exit_code: 0, missing: ["rank-1 has no trace: it has ended"] }));
  expect(said).toEqual(["py-spy records 1 process"]);
  expect(await stored).toEqual(["rank-1 has no trace: it has ended"]);
});

test("a refusal and a lost connection have their reasons", async () => {
  const refused = dialogue();
  refused.hear(encodeJson(Frame.END, { error: "no Python runs in this learner" }));
  await expect(refused.stored).rejects.toThrow("no Python runs in this learner");
  const lost = dialogue();
  lost.socket.onclose?.call(lost.socket as WebSocket, { reason: "" } as CloseEvent);
  await expect(lost.stored).rejects.toThrow("The connection to the server was lost");
});
