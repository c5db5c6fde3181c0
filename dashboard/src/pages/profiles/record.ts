// A recording of a profile, through a tunnel to the learner's agent.
import { decodeEnd, encodeJson, Frame } from "../../shell/frames";
import type { Socket } from "../../shell/tunnel";

export interface Request {
  profile: string;
  steps: number;
  seconds: number | null;
}

/** An id as the command line makes it: the time, and four random digits. */
export function profileId(now: Date, random: number): string {
  const [day = "", time = ""] = now.toISOString().split("T");
  const digits = Math.floor(random * 0x10000)
    .toString(16)
    .padStart(4, "0");
  return `${day.replaceAll("-", "")}-${time.slice(0, 8).replaceAll(":", "")}-${digits}`;
}

/** Resolves when the files are stored, to what is missing among them. `say` gets lines about the recording. */
export function record(socket: Socket, request: Request, say: (text: string) => void): Promise<string[]> {
  return new Promise((resolve, reject) => {
    socket.binaryType = "arraybuffer";
    socket.onopen = () => socket.send(encodeJson(Frame.OPEN, request));
    socket.onmessage = (event: MessageEvent<ArrayBuffer>) => {
      const message = new Uint8Array(event.data);
      const content = message.subarray(1);
      if (message[0] === Frame.OUTPUT) say(new TextDecoder().decode(content).trim());
      if (message[0] !== Frame.END) return;
      const { error, missing } = decodeEnd(content);
      if (error) reject(new Error(error));
      else resolve(missing ?? []);
      socket.close(1000);
    };
    socket.onclose = (event) =>
      reject(new Error(event.reason || "The connection to the server was lost. The recording may go on all the same."));
  });
}
