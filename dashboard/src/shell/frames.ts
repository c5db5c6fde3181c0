// The messages of a tunnel (docs/into-a-job.md#frames): a byte that says what it is, and its content.

/** Bytes of data that each side may send before the other one has said that it has taken them. */
export const WINDOW = 2 << 20;
/** Bytes of data in a message. */
export const PIECE = 65_535;
export const ACKNOWLEDGE = WINDOW / 4;

export const Frame = {
  OPEN: 0,
  INPUT: 1,
  OUTPUT: 2,
  ERRORS: 3,
  DONE: 4,
  END: 5,
  RESIZE: 6,
  SIGNAL: 7,
  TAKEN: 8,
  RESUMED: 9,
} as const;
export type Frame = (typeof Frame)[keyof typeof Frame];

export function encode(frame: Frame, content: Uint8Array = new Uint8Array()): Uint8Array<ArrayBuffer> {
  const message = new Uint8Array(content.length + 1);
  message[0] = frame;
  message.set(content, 1);
  return message;
}

export function encodeJson(frame: Frame, value: unknown): Uint8Array<ArrayBuffer> {
  return encode(frame, new TextEncoder().encode(JSON.stringify(value)));
}

/** How many bytes have been taken since the last time. */
export function encodeTaken(bytes: number): Uint8Array<ArrayBuffer> {
  const content = new Uint8Array(4);
  new DataView(content.buffer).setUint32(0, bytes);
  return encode(Frame.TAKEN, content);
}

export function decodeTaken(content: Uint8Array): number {
  return new DataView(content.buffer, content.byteOffset, content.byteLength).getUint32(0);
}

/** The answer to an OPEN that resumes: bytes of data that the agent has received, and of these, those that it has taken. */
export interface Resumed {
  received: number;
  taken: number;
}

export function decodeResumed(content: Uint8Array): Resumed {
  return JSON.parse(new TextDecoder().decode(content)) as Resumed;
}

/** The agent's last word. */
export interface End {
  exit_code?: number;
  error?: string;
  /** Of a profile: why files are missing. */
  missing?: string[];
}

export function decodeEnd(content: Uint8Array): End {
  return JSON.parse(new TextDecoder().decode(content)) as End;
}
