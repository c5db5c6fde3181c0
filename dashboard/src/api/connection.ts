// Whether the API is there. A call without an answer reports it lost. Then /readyz is polled until it answers.
import { useSyncExternalStore } from "react";

const AGAIN = 2000; // ms
const PATIENCE = 5000; // ms

const ready = () =>
  fetch("/readyz", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) }).then(
    (answer) => answer.ok,
    () => false,
  );

class Connection {
  private away = false;
  private readonly listeners = new Set<() => void>();
  private readonly whenBack = new Set<() => void>();

  lost() {
    if (this.away) return;
    this.away = true;
    this.listeners.forEach((listener) => listener());
    window.setTimeout(() => void this.probe(), AGAIN);
  }

  private async probe() {
    if (!(await ready())) {
      window.setTimeout(() => void this.probe(), AGAIN);
      return;
    }
    this.away = false;
    this.listeners.forEach((listener) => listener());
    this.whenBack.forEach((retry) => retry());
  }

  /** Call `action` each time that the API is back. */
  onBack(action: () => void) {
    this.whenBack.add(action);
    return () => void this.whenBack.delete(action);
  }

  /** Resolves at once when the API answers, else as soon as it does again. */
  async there() {
    if (await ready()) return;
    this.lost();
    await new Promise<void>((done) => {
      const stop = this.onBack(() => {
        stop();
        done();
      });
    });
  }

  subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  };

  isAway = () => this.away;
}

export const connection = new Connection();
export const useAway = () => useSyncExternalStore(connection.subscribe, connection.isAway);
