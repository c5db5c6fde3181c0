// A shell in a learner, through the API: keys and sizes go in, output comes out.
import { ACKNOWLEDGE, decodeEnd, decodeTaken, encode, encodeJson, encodeTaken, Frame, PIECE, WINDOW } from "./frames";

export interface Size {
  rows: number;
  columns: number;
}

/** What the socket of the browser offers, as far as a tunnel uses it. */
export type Socket = Pick<WebSocket, "binaryType" | "close" | "onclose" | "onmessage" | "onopen" | "send">;

interface Listener {
  opened: () => void;
  /** Output of the shell. `taken` is to be called when it has been shown. */
  output: (data: Uint8Array, taken: () => void) => void;
  /** The last call. `opened`: whether the shell had been opened before. */
  ended: (words: string, opened: boolean) => void;
}

export class ShellTunnel {
  private readonly socket: Socket;
  private readonly listener: Listener;
  private room = WINDOW;
  private waiting: Uint8Array[] = [];
  private taken = 0;
  private open = false;
  private over = false;

  constructor(socket: Socket, size: Size, listener: Listener) {
    this.socket = socket;
    this.listener = listener;
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      this.open = true;
      socket.send(encodeJson(Frame.OPEN, { command: null, terminal: { ...size, term: "xterm-256color" } }));
      listener.opened();
      this.send();
    };
    socket.onmessage = (event: MessageEvent<ArrayBuffer>) => this.receive(new Uint8Array(event.data));
    socket.onclose = (event) => this.end(`The shell broke: ${event.reason || "the connection to the server was lost"}.`);
  }

  /** Keys and pasted text; they wait until the learner has room for them. */
  input(text: string) {
    const data = new TextEncoder().encode(text);
    for (let start = 0; start < data.length; start += PIECE) this.waiting.push(data.subarray(start, start + PIECE));
    this.send();
  }

  resize({ rows, columns }: Size) {
    if (this.open && !this.over) this.socket.send(encodeJson(Frame.RESIZE, [rows, columns]));
  }

  /** Ends the shell. */
  close() {
    this.socket.close(1000);
  }

  private send() {
    while (this.open && !this.over && this.room > 0) {
      const piece = this.waiting.shift();
      if (!piece) return;
      this.room -= piece.length;
      this.socket.send(encode(Frame.INPUT, piece));
    }
  }

  private receive(message: Uint8Array) {
    const content = message.subarray(1);
    switch (message[0]) {
      case Frame.OUTPUT:
      case Frame.ERRORS:
        this.listener.output(content, () => this.took(content.length));
        return;
      case Frame.TAKEN:
        this.room += decodeTaken(content);
        this.send();
        return;
      case Frame.END: {
        const { error, exit_code: code } = decodeEnd(content);
        this.end(error ? `The shell ended: ${error}.` : `The shell ended with exit code ${code ?? "unknown"}.`);
        this.socket.close(1000);
      }
    }
  }

  private took(bytes: number) {
    this.taken += bytes;
    if (this.taken < ACKNOWLEDGE || this.over) return;
    this.socket.send(encodeTaken(this.taken));
    this.taken = 0;
  }

  private end(words: string) {
    if (this.over) return;
    this.over = true;
    this.listener.ended(words, this.open);
  }
}
