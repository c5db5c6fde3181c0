// TensorBoard's event files of a learner that runs: its agent packs them into a tar, which comes through a tunnel.
import { ACKNOWLEDGE, decodeEnd, encode, encodeTaken, Frame } from "../../shell/frames";
import type { Socket } from "../../shell/tunnel";
import { untar } from "./tar";

/** Resolves to the event files by their paths. `say` gets how many bytes have come. */
export function readLearner(socket: Socket, say: (bytes: number) => void): Promise<Map<string, Uint8Array>> {
  return new Promise((resolve, reject) => {
    const pieces: Uint8Array<ArrayBuffer>[] = [];
    let [bytes, untold, complaint] = [0, 0, ""];
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      socket.send(encode(Frame.OPEN, new TextEncoder().encode("{}")));
      socket.send(encode(Frame.DONE));
    };
    socket.onmessage = (event: MessageEvent<ArrayBuffer>) => {
      const message = new Uint8Array(event.data);
      const content = message.subarray(1);
      if (message[0] === Frame.OUTPUT || message[0] === Frame.ERRORS) {
        if (message[0] === Frame.OUTPUT) {
          pieces.push(content);
          bytes += content.length;
          say(bytes);
        } else complaint += new TextDecoder().decode(content);
        untold += content.length;
        if (untold >= ACKNOWLEDGE) {
          socket.send(encodeTaken(untold));
          untold = 0;
        }
      }
      if (message[0] !== Frame.END) return;
      const { error, exit_code: code } = decodeEnd(content);
      if (error || code !== 0) reject(new Error(error ?? (complaint.trim() || "The learner could not send its event files.")));
      else void new Blob(pieces).arrayBuffer().then((whole) => resolve(untar(new Uint8Array(whole))), reject);
      socket.onclose = null;
      socket.close(1000);
    };
    socket.onclose = (event) => reject(new Error(event.reason || "The connection to the server was lost."));
  });
}
