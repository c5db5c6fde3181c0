import { afterEach, describe, expect, it, vi } from "vitest";

import { ACKNOWLEDGE, decodeTaken, encode, encodeJson, encodeTaken, Frame, PIECE, WINDOW } from "../../src/shell/frames";
import { place } from "../../src/shell/place";
import { ShellTunnel, type Socket } from "../../src/shell/tunnel";

function connection() {
  const sent: Uint8Array[] = [];
  const socket = {
    binaryType: "blob",
    send: (message: Uint8Array) => sent.push(message),
    close: vi.fn(),
    onopen: null,
    onmessage: null,
    onclose: null,
  } as unknown as Socket;
  const receive = (message: Uint8Array<ArrayBuffer>) =>
    socket.onmessage?.call(socket as WebSocket, { data: message.buffer } as MessageEvent<ArrayBuffer>);
  const open = () => socket.onopen?.call(socket as WebSocket, {} as Event);
  const close = (reason = "", code = 1006) =>
    socket.onclose?.call(socket as WebSocket, { reason, code } as CloseEvent);
  return { sent, socket, receive, open, close };
}

function opened() {
  const connections = [connection(), connection(), connection()] as const;
  const connect = vi.fn(() => (connections[connect.mock.calls.length - 1] ?? connections[2]).socket);
  const refusal = vi.fn(() => Promise.resolve<string | null>(null));
  const listener = { opened: vi.fn(), output: vi.fn(), broken: vi.fn(), ended: vi.fn(), refusal };
  const tunnel = new ShellTunnel(connect, { rows: 24, columns: 80 }, listener);
  return { ...connections[0], connections, connect, listener, tunnel };
}

const text = (message: Uint8Array | undefined) => new TextDecoder().decode(message?.subarray(1));

describe("a shell's tunnel", () => {
  it("asks for a shell of the terminal's size of now", () => {
    const { sent, tunnel, open, listener } = opened();
    tunnel.resize({ rows: 10, columns: 10 });
    expect(sent).toEqual([]);
    open();
    expect(listener.opened).toHaveBeenCalledOnce();
    expect(sent[0]?.[0]).toBe(Frame.OPEN);
    expect(JSON.parse(text(sent[0]))).toEqual({
      command: null,
      terminal: { rows: 10, columns: 10, term: "xterm-256color" },
      key: expect.stringMatching(/^[0-9a-f]{32}$/) as string,
    });
    tunnel.resize({ rows: 30, columns: 100 });
    expect(sent[1]?.[0]).toBe(Frame.RESIZE);
    expect(text(sent[1])).toBe("[30,100]");
  });

  it("sends what was typed before it was open", () => {
    const { sent, tunnel, open } = opened();
    tunnel.input("ls\r");
    open();
    tunnel.input("é");
    expect(sent.slice(1).map(text)).toEqual(["ls\r", "é"]);
  });

  it("sends no more than the learner has room for", () => {
    const { sent, tunnel, open, receive } = opened();
    open();
    tunnel.input("x".repeat(WINDOW + 3 * PIECE));
    const before = sent.slice(1).reduce((sum, message) => sum + message.length - 1, 0);
    expect(before).toBeGreaterThanOrEqual(WINDOW);
    expect(before).toBeLessThan(WINDOW + PIECE);
    receive(encodeTaken(WINDOW));
    expect(sent.slice(1).reduce((sum, message) => sum + message.length - 1, 0)).toBe(WINDOW + 3 * PIECE);
  });

  it("says that it has taken output only when that was shown", () => {
    const { sent, listener, open, receive } = opened();
    open();
    const shown: (() => void)[] = [];
    listener.output.mockImplementation((_: Uint8Array, taken: () => void) => shown.push(taken));
    const piece = encode(Frame.OUTPUT, new Uint8Array(PIECE));
    const pieces = Math.ceil(ACKNOWLEDGE / PIECE);
    for (let n = 0; n < pieces; n += 1) receive(piece);
    expect(sent).toHaveLength(1);
    shown.forEach((taken) => taken());
    expect(sent[1]?.[0]).toBe(Frame.TAKEN);
    expect(decodeTaken(sent[1]?.subarray(1) ?? new Uint8Array(4))).toBe(pieces * PIECE);
  });

  it("ends once, with the exit code, the error, or the reason of the server", () => {
    const first = opened();
    first.open();
    first.receive(encodeJson(Frame.END, { exit_code: 3 }));
    first.close();
    expect(first.listener.ended.mock.calls).toEqual([["The shell ended with exit code 3.", true]]);
    const second = opened();
    second.open();
    second.receive(encodeJson(Frame.END, { error: "the program has ended" }));
    expect(second.listener.ended.mock.calls).toEqual([["The shell ended: the program has ended.", true]]);
    const third = opened();
    third.close();
    expect(third.listener.ended.mock.calls).toEqual([
      ["The shell broke: the connection to the server was lost.", false],
    ]);
  });

  it("leaves out messages of a newer agent", () => {
    const { listener, open, receive } = opened();
    open();
    receive(Uint8Array.from([99, 1]));
    expect(listener.output).not.toHaveBeenCalled();
    expect(listener.ended).not.toHaveBeenCalled();
  });
});

describe("a shell whose connection breaks", () => {
  afterEach(() => void vi.useRealTimers());

  function broken() {
    vi.useFakeTimers();
    const shell = opened();
    shell.open();
    shell.tunnel.input("one");
    shell.receive(encode(Frame.OUTPUT, new Uint8Array(5)));
    shell.tunnel.input("two");
    shell.close();
    return shell;
  }

  it("goes on over another one, from where the learner is", () => {
    const { connections, connect, listener, tunnel } = broken();
    expect(listener.broken).toHaveBeenCalledExactlyOnceWith("the connection to the server was lost");
    tunnel.input("three");
    tunnel.resize({ rows: 9, columns: 9 });
    vi.advanceTimersByTime(1000);
    const { sent, open, receive } = connections[1];
    open();
    const key = (JSON.parse(text(connections[0].sent[0])) as { key: string }).key;
    expect(JSON.parse(text(sent[0]))).toEqual({ resume: key, received: 5, taken: 0 });
    expect(sent).toHaveLength(1);
    receive(encodeJson(Frame.RESUMED, { received: 3, taken: 3 }));
    expect(sent.slice(1).map(text)).toEqual(["two", "three", "[9,9]"]);
    expect(listener.opened).toHaveBeenCalledTimes(2);
    expect(connect).toHaveBeenCalledTimes(2);
  });

  it("ends when the learner has given it up", () => {
    const { connections, listener } = broken();
    vi.advanceTimersByTime(1000);
    connections[1].open();
    connections[1].receive(encodeJson(Frame.END, { error: "the tunnel is over" }));
    expect(listener.ended).toHaveBeenCalledExactlyOnceWith(
      "The shell broke: the connection to the server was lost.",
      true,
    );
  });

  it("ends when no connection comes in time", async () => {
    const { connections, connect, listener } = broken();
    vi.advanceTimersByTime(1000);
    connections[1].close();
    expect(listener.ended).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(connect).toHaveBeenCalledTimes(3);
    connections[2].close();
    expect(listener.broken).toHaveBeenCalledOnce();
    expect(listener.ended).toHaveBeenCalledOnce();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(connect).toHaveBeenCalledTimes(3);
  });

  it("ends at once when the server says that there is nothing to go on with", async () => {
    const { connections, connect, listener } = broken();
    listener.refusal.mockResolvedValue("The job is COMPLETED: no learner of it runs.");
    vi.advanceTimersByTime(1000);
    connections[1].close();
    await vi.advanceTimersByTimeAsync(0);
    expect(listener.ended).toHaveBeenCalledExactlyOnceWith(
      "The shell broke: the connection to the server was lost. The job is COMPLETED: no learner of it runs.",
      true,
    );
    await vi.advanceTimersByTimeAsync(60_000);
    expect(connect).toHaveBeenCalledTimes(2);
  });

  it("does not ask the server if a connection was made, and broke", async () => {
    const { connections, connect, listener } = broken();
    vi.advanceTimersByTime(1000);
    connections[1].open();
    connections[1].close();
    await vi.advanceTimersByTimeAsync(1000);
    expect(listener.refusal).not.toHaveBeenCalled();
    expect(connect).toHaveBeenCalledTimes(3);
  });

  it.each([1000, 1003, 1008, 4001])("does not come back after the code %i", (code) => {
    vi.useFakeTimers();
    const { open, close, connect, listener } = opened();
    open();
    close("sign in again", code);
    vi.advanceTimersByTime(60_000);
    expect(connect).toHaveBeenCalledOnce();
    expect(listener.ended).toHaveBeenCalledExactlyOnceWith("The shell broke: sign in again.", true);
  });
});

it("reads the job and the learner from the path", () => {
  expect(place("/jobs/job-1/shell/2")).toEqual({ job: "job-1", learner: 2 });
});
