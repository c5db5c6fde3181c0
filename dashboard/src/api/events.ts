// The format of server-sent events.
export interface ServerEvent {
  name: string;
  data: string;
  /** Empty if it has none. */
  id: string;
}

/** Takes a stream's bytes as they come, and gives the events that are whole. */
export class EventReader {
  private readonly decoder = new TextDecoder();
  private rest = "";

  read(bytes: Uint8Array): ServerEvent[] {
    const blocks = (this.rest + this.decoder.decode(bytes, { stream: true })).split(/\r?\n\r?\n/);
    this.rest = blocks.pop() ?? "";
    return blocks.flatMap((block) => {
      const event: ServerEvent = { name: "message", data: "", id: "" };
      const data: string[] = [];
      for (const line of block.split(/\r?\n/)) {
        const [, field, text = ""] = /^(\w+)(?:: ?(.*))?$/s.exec(line) ?? [];
        if (field === "event") event.name = text;
        else if (field === "id") event.id = text;
        else if (field === "data") data.push(text);
      }
      return data.length ? [{ ...event, data: data.join("\n") }] : [];
    });
  }
}
