import { expect, test } from "vitest";

import { EventReader } from "../../src/api/events";

const bytes = (text: string) => new TextEncoder().encode(text);

test("events are whole before they count, wherever the bytes are cut", () => {
  const all = bytes('id: 7\nevent: line\ndata: {"s":"é"}\n\n: ping\n\nevent: end\ndata: {}\n\n');
  for (let cut = 0; cut <= all.length; cut += 1) {
    const reader = new EventReader();
    expect([...reader.read(all.slice(0, cut)), ...reader.read(all.slice(cut))]).toEqual([
      { name: "line", data: '{"s":"é"}', id: "7" },
      { name: "end", data: "{}", id: "" },
    ]);
  }
});

test("data of several lines are joined; a comment is no event", () => {
  expect(new EventReader().read(bytes(": ping\n\ndata: a\ndata: b\n\n"))).toEqual([{ name: "message", data: "a\nb", id: "" }]);
});
