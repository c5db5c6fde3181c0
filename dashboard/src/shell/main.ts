// A shell in a learner, in a document of its own: the terminal writes style sheets as it runs, and the policy of the
// other pages forbids that. Nothing of the other pages is here.
import "@xterm/xterm/css/xterm.css";
import "../styles/tokens.css";
import "../styles/base.css";
import "./shell.css";

import { FitAddon } from "@xterm/addon-fit";
import { type ITheme, Terminal } from "@xterm/xterm";

import { ApiError, AwayError, call } from "../api/client";
import { applyTheme } from "../app/theme";
import { tunnelAddress } from "./open";
import { place } from "./place";
import { ShellTunnel } from "./tunnel";

function element(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (!found) throw new Error(`shell.html has no #${id}`);
  return found;
}

const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"] as const;

applyTheme();
const { job, learner } = place(location.pathname);
const status = element("status");
const again = element("again") as HTMLButtonElement;
const link = element("job") as HTMLAnchorElement;
link.href = `/jobs/${encodeURIComponent(job)}`;
link.textContent = job;
element("learner").textContent = `learner ${learner}`;
document.title = `${job} · learner ${learner} · Weft`;

const terminal = new Terminal({
  cursorBlink: true,
  fontFamily: value("--mono"),
  fontSize: 13,
  scrollback: 20_000,
  screenReaderMode: true,
  theme: theme(),
});
const fit = new FitAddon();
terminal.loadAddon(fit);
terminal.open(element("terminal"));
fit.fit();

function value(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function theme(): ITheme {
  return {
    background: value("--bg"),
    foreground: value("--text"),
    cursor: value("--accent"),
    cursorAccent: value("--bg"),
    selectionBackground: value("--mark"),
    selectionForeground: "#1a2028",
    ...Object.fromEntries(
      COLOURS.flatMap((colour) => {
        const shown = value(`--ansi-${colour}`);
        return [
          [colour, shown],
          [`bright${colour[0]?.toUpperCase()}${colour.slice(1)}`, shown],
        ];
      }),
    ),
  };
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  terminal.options.theme = theme();
});

let tunnel: ShellTunnel | null = null;
terminal.onData((text) => tunnel?.input(text));
terminal.onResize(({ rows, cols }) => tunnel?.resize({ rows, columns: cols }));
new ResizeObserver(() => fit.fit()).observe(element("terminal"));
addEventListener("beforeunload", (event) => {
  if (tunnel) event.preventDefault(); // the shell ends with the page
});

function say(words: string, ended = false) {
  status.textContent = words;
  again.hidden = !ended;
}

function end(words: string) {
  tunnel = null;
  say(words, true);
  again.focus();
}

/** The API's error when it is asked for a tunnel: a browser does not pass on why a WebSocket was refused. */
async function check(): Promise<ApiError | AwayError | null> {
  try {
    await call(`/api/v1/jobs/${encodeURIComponent(job)}/tunnels?learner=${learner}`);
  } catch (error) {
    if (error instanceof ApiError || error instanceof AwayError) return error;
    throw error;
  }
  return null;
}

const SIGN_IN = "Sign in first, on the job's page.";

/** Why there is no shell. */
async function reason(): Promise<string> {
  const error = await check();
  if (error instanceof ApiError) return error.status === 401 ? SIGN_IN : `No shell: ${error.message}.`;
  return error?.message ?? "No shell: the learner's agent does not come, or too many tunnels are open.";
}

/** Why a shell can't go on, if waiting does not help. */
async function refusal(): Promise<string | null> {
  const error = await check();
  if (!(error instanceof ApiError) || error.status === 429 || error.status >= 500) return null;
  return error.status === 401 ? SIGN_IN : `${capitalized(error.message)}.`;
}

function capitalized(words: string): string {
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function open() {
  say("Opening …");
  terminal.write("\x1b[2J\x1b[H"); // what came before stays above, to scroll back to
  const opening = new ShellTunnel(
    () => new WebSocket(tunnelAddress(job, "shell", learner)),
    { rows: terminal.rows, columns: terminal.cols },
    {
      opened: () => {
        tunnel = opening;
        say("");
        terminal.focus();
      },
      output: (data, taken) => terminal.write(data, taken),
      broken: (words) => say(`${capitalized(words)}. Reconnecting …`),
      refusal,
      ended: (words, opened) => {
        if (opened) end(words);
        else void reason().then(end);
      },
    },
  );
}
again.addEventListener("click", open);
open();
