// A shell in a learner, through the API: keys and sizes go in, output comes out. When its connection breaks, a shell goes
// on over another one, without a gap: each side keeps what the other one has not taken yet.
import {
  ACKNOWLEDGE,
  decodeEnd,
  decodeResumed,
  decodeTaken,
  encode,
  encodeJson,
  encodeTaken,
  Frame,
  PIECE,
  type Resumed,
  WINDOW,
} from "./frames";

/** For which a shell waits for another connection, in milliseconds; the learner's agent waits as long. */
const PATIENCE = 60_000;
/** The same, if the server is there and the learner has gone. */
const LEARNER_PATIENCE = 15_000;
const PAUSE = 500;
/** Close codes after which a shell is over: done, a fault of the protocol, a right that has ended, a limit. */
const FINAL = [1000, 1003, 1008, 4001];
const LEARNER_GONE = 4000;

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
  /** The connection broke, and another one is being made; `opened` follows, or `ended`. */
  broken: (words: string) => void;
  /** Why the server takes no connection to this learner any more; null: it does, or it can't be asked. */
  refusal: () => Promise<string | null>;
  /** The last call. `opened`: whether the shell had been opened before. */
  ended: (words: string, opened: boolean) => void;
}

export class ShellTunnel {
  private readonly connect: () => Socket;
  private readonly listener: Listener;
  private readonly key = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");
  private socket: Socket | null = null;
  private size: Size;
  private room = WINDOW;
  private waiting: Uint8Array[] = [];
  /** What was sent and not taken yet begins after `keptFrom` bytes. */
  private kept: Uint8Array[] = [];
  private keptFrom = 0;
  private confirmed = 0;
  private received = 0;
  private taken = 0;
  private untold = 0;
  private open = false;
  private opened = false;
  private over = false;
  private reason = "";
  private giveUpAt = 0;

  constructor(connect: () => Socket, size: Size, listener: Listener) {
    this.connect = connect;
    this.size = size;
    this.listener = listener;
    this.dial();
  }

  /** Keys and pasted text; they wait until the learner has room for them. */
  input(text: string) {
    const data = new TextEncoder().encode(text);
    for (let start = 0; start < data.length; start += PIECE) this.waiting.push(data.subarray(start, start + PIECE));
    this.send();
  }

  resize(size: Size) {
    this.size = size;
    if (this.open && !this.over) this.socket?.send(encodeJson(Frame.RESIZE, [size.rows, size.columns]));
  }

  /** Ends the shell. */
  close() {
    this.over = true;
    this.socket?.close(1000);
  }

  private dial() {
    if (this.over) return;
    const socket = this.connect();
    this.socket = socket;
    socket.binaryType = "arraybuffer";
    let reached = false;
    socket.onopen = () => {
      reached = true;
      if (this.opened) {
        socket.send(encodeJson(Frame.OPEN, { resume: this.key, received: this.received, taken: this.taken }));
        return; // the answer is RESUMED
      }
      socket.send(
        encodeJson(Frame.OPEN, { command: null, terminal: { ...this.size, term: "xterm-256color" }, key: this.key }),
      );
      this.begin();
    };
    socket.onmessage = (event: MessageEvent<ArrayBuffer>) => this.receive(new Uint8Array(event.data));
    socket.onclose = (event) => this.broke(event.code, event.reason, reached);
  }

  private begin() {
    this.open = this.opened = true;
    this.reason = "";
    this.listener.opened();
    this.send();
  }

  private broke(code: number, reason: string, reached: boolean) {
    if (this.over) return;
    const first = !this.reason;
    this.open = false;
    this.reason ||= reason || "the connection to the server was lost";
    if (!this.opened || FINAL.includes(code)) {
      this.end(`The shell broke: ${this.reason}.`);
      return;
    }
    if (first) {
      this.giveUpAt = Date.now() + (code === LEARNER_GONE ? LEARNER_PATIENCE : PATIENCE);
      this.listener.broken(this.reason);
    }
    if (Date.now() >= this.giveUpAt) this.end(`The shell broke: ${this.reason}.`);
    else if (reached) setTimeout(() => this.dial(), PAUSE);
    else void this.dialUnlessRefused();
  }

  private async dialUnlessRefused() {
    const refusal = await this.listener.refusal();
    if (refusal) this.end(`The shell broke: ${this.reason}. ${refusal}`);
    else setTimeout(() => this.dial(), PAUSE);
  }

  private send() {
    while (this.open && !this.over && this.room > 0) {
      const piece = this.waiting.shift();
      if (!piece) return;
      this.room -= piece.length;
      this.kept.push(piece);
      this.socket?.send(encode(Frame.INPUT, piece));
    }
  }

  private receive(message: Uint8Array) {
    const content = message.subarray(1);
    switch (message[0]) {
      case Frame.OUTPUT:
      case Frame.ERRORS:
        this.received += content.length;
        this.listener.output(content, () => this.took(content.length));
        return;
      case Frame.TAKEN:
        this.confirm(this.confirmed + decodeTaken(content));
        this.send();
        return;
      case Frame.RESUMED:
        this.resume(decodeResumed(content));
        return;
      case Frame.END: {
        const { error, exit_code: code } = decodeEnd(content);
        // An error in place of RESUMED: the agent has given the shell up, and says no more of the reason.
        const words = error && !this.open ? `The shell broke: ${this.reason}.` : error && `The shell ended: ${error}.`;
        this.end(words || `The shell ended with exit code ${code ?? "unknown"}.`);
        this.socket?.close(1000);
      }
    }
  }

  private resume(there: Resumed) {
    this.confirm(there.taken);
    this.untold = 0;
    let start = this.keptFrom;
    for (const piece of this.kept) {
      if (start >= there.received) this.socket?.send(encode(Frame.INPUT, piece));
      start += piece.length;
    }
    this.begin();
    this.resize(this.size); // it may have changed meanwhile
  }

  /** The agent has taken so many bytes in all. */
  private confirm(bytes: number) {
    this.room += bytes - this.confirmed;
    this.confirmed = bytes;
    for (let first = this.kept[0]; first && this.keptFrom + first.length <= bytes; first = this.kept[0]) {
      this.kept.shift();
      this.keptFrom += first.length;
    }
  }

  private took(bytes: number) {
    this.taken += bytes;
    this.untold += bytes;
    if (this.untold < ACKNOWLEDGE || this.over || !this.open) return;
    this.socket?.send(encodeTaken(this.untold));
    this.untold = 0;
  }

  private end(words: string) {
    if (this.over) return;
    this.over = true;
    this.listener.ended(words, this.opened);
  }
}
