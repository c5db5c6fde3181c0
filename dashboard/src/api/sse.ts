// The text of server-sent events, read piece by piece as it comes.

export interface SentEvent {
  name: string;
  data: string;
  id: string;
}

/** A function that takes the next piece of a stream's text and returns the events that it completes. */
export function sseParser(): (piece: string) => SentEvent[] {
  let left = "";
  let name = "";
  let id = "";
  let data: string[] = [];

  const line = (text: string): SentEvent | null => {
    if (text === "") {
      const event = data.length ? { name: name || "message", data: data.join("\n"), id } : null;
      name = id = "";
      data = [];
      return event;
    }
    const colon = text.indexOf(":");
    if (colon === 0) return null; // a comment, which keeps the connection
    const field = colon < 0 ? text : text.slice(0, colon);
    const value = colon < 0 ? "" : text.slice(colon + 1).replace(/^ /, "");
    if (field === "event") name = value;
    else if (field === "data") data.push(value);
    else if (field === "id") id = value;
    return null;
  };

  return (piece) => {
    const lines = (left + piece).split("\n");
    left = lines.pop() ?? "";
    return lines.flatMap((text) => line(text.replace(/\r$/, "")) ?? []);
  };
}
