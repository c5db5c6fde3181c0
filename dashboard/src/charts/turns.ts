// Which charts may ask for their points and draw themselves. At rest, all that are near the window may, those in sight
// first. While the page is scrolled, they take turns, the nearest to the middle first: a chart that has passed before its
// turn costs nothing.

const REST = 120; // ms without scrolling, after which the page is at rest
const PAUSE = 250; // ms between two turns while it is scrolled
const AFTER = 300; // ms that those out of sight wait at rest

/** A chart near the window that waits for its turn. */
interface Waiting {
  /** From the middle of the window, in px. */
  distance: () => number;
  inSight: () => boolean;
  go: () => void;
}

export class Turns {
  private readonly since = new Map<Waiting, number>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private scrolledAt = -Infinity;
  private turnAt = -Infinity;

  /** To be told of each scrolling. */
  scrolled(): void {
    this.scrolledAt = performance.now();
  }

  atRest(): boolean {
    return performance.now() - this.scrolledAt >= REST;
  }

  /** Returns how to give up waiting. */
  wait(chart: Waiting): () => void {
    this.since.set(chart, performance.now());
    this.look(0);
    return () => this.since.delete(chart);
  }

  private look(delay: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const now = performance.now();
      const rest = this.scrolledAt + REST - now;
      if (rest > 0) this.takeTurn(now, rest);
      else this.letGo(now);
    }, delay);
  }

  private takeTurn(now: number, rest: number): void {
    const [nearest] = [...this.since.keys()].sort((one, other) => one.distance() - other.distance());
    if (!nearest) return;
    const early = this.turnAt + PAUSE - now;
    if (early > 0) return this.look(Math.min(rest, early));
    this.turnAt = now;
    this.let(nearest);
    this.look(rest);
  }

  private letGo(now: number): void {
    for (const [chart, since] of this.since) if (chart.inSight() || now - since >= AFTER) this.let(chart);
    if (this.since.size) this.look(AFTER);
  }

  private let(chart: Waiting): void {
    this.since.delete(chart);
    chart.go();
  }
}
