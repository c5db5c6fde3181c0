import { expect, test } from "vitest";

import { sseParser } from "../../src/api/sse";

test("events are read however their text is cut into pieces", () => {
  const text = "id: 7\r\nevent: line\r\ndata: {\"n\":\r\ndata: 1}\r\n\r\n: ping\n\ndata: x\n\n";
  for (const size of [1, 2, 5, text.length]) {
    const parse = sseParser();
    const events = [];
    for (let at = 0; at < text.length; at += size) events.push(...parse(text.slice(at, at + size)));
    expect(events).toEqual([
      { name: "line", data: '{"n":\n1}', id: "7" },
      { name: "message", data: "x", id: "" },
    ]);
  }
});
