// The part of a log that is held in memory: some thousand lines in a row, which grows at one end and is cut at the
// other while one scrolls, so that a log of any length can be read. It knows nothing of the screen.
import { json } from "../../api/client";
import type { LogLine, LogPage } from "../../api/types";

export interface LineRow {
  key: string;
  line: LogLine;
}
/** Lines that a slow follower was not sent. */
export interface GapRow {
  key: string;
  gap: { from: number; to: number; lines: number };
}
export type Row = LineRow | GapRow;

export interface LogFilter {
  learner?: number | undefined;
  attempt?: number | undefined;
}

export interface Snapshot {
  rows: readonly Row[];
  /** Lines in the job's log, whatever the filter. */
  total: number;
  /** There are lines above the first row. */
  above: boolean;
  /** The last row is the newest line there is. */
  atEnd: boolean;
  /** Where the lines after the last row begin. */
  next: number;
  /** The line that was asked for last; null for the end. */
  opened: number | null;
  busy: boolean;
  loaded: boolean;
  error: unknown;
}

const PAGE = 500;
const MOST = 6000;

export class LogWindow {
  readonly filter: LogFilter;
  private readonly path: string;
  private readonly listeners = new Set<() => void>();
  private previous: number | null = null;
  /** Counts jumps: what was asked for before one comes too late. */
  private age = 0;
  private state: Snapshot = {
    rows: [],
    total: 0,
    above: false,
    atEnd: false,
    next: 0,
    opened: null,
    busy: false,
    loaded: false,
    error: null,
  };

  constructor(jobId: string, filter: LogFilter) {
    this.filter = filter;
    this.path = `/jobs/${encodeURIComponent(jobId)}/logs`;
  }

  subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  };
  snapshot = () => this.state;

  private set(changes: Partial<Snapshot>) {
    this.state = { ...this.state, ...changes };
    this.listeners.forEach((listener) => listener());
  }

  private page(parameters: Record<string, string | number>): Promise<LogPage> {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries({ ...this.filter, ...parameters })) {
      if (value !== undefined) query.set(name, String(value));
    }
    return json<LogPage>(`${this.path}?${query}`);
  }

  /** Runs one read at a time; what a jump made out of date is dropped. */
  private async read(work: () => Promise<Partial<Snapshot>>, jump = false) {
    if (this.state.busy && !jump) return;
    const age = jump ? ++this.age : this.age;
    this.set({ busy: true, error: null });
    try {
      const changes = await work();
      if (age === this.age) this.set({ ...changes, busy: false, loaded: true });
    } catch (error) {
      if (age === this.age) this.set({ busy: false, error });
    }
  }

  has(line: number) {
    const { rows } = this.state;
    const first = rows[0];
    const last = rows.at(-1);
    if (!first || !last || line < numberOf(first) || line > numberOf(last)) return false;
    return !rows.some((row) => "gap" in row && row.gap.from <= line && line <= row.gap.to);
  }

  /** The lines at the log's end. */
  openEnd() {
    return this.read(async () => {
      const page = await this.page({ tail: PAGE, limit: PAGE });
      this.previous = page.first;
      return { ...this.fresh(page), above: (page.first ?? 0) > 0, opened: null };
    }, true);
  }

  /** The lines around one. */
  openAt(line: number) {
    return this.read(async () => {
      const [above, page] = await Promise.all([
        this.page({ before: line, limit: PAGE / 2 }),
        this.page({ from: line, limit: PAGE }),
      ]);
      this.previous = above.previous;
      return { ...this.fresh(page, above.lines), above: above.previous !== null, opened: line };
    }, true);
  }

  /** The API is back: what it has not answered is asked again. */
  again(line: number | undefined) {
    if (!this.state.error) return;
    if (this.state.loaded) this.set({ error: null });
    else void (line === undefined ? this.openEnd() : this.openAt(line));
  }

  /** The lines from a time on. Returns the first one's number, or null when the log ends before. */
  async lineAt(time: string): Promise<number | null> {
    return (await this.page({ at: time, limit: 1 })).first;
  }

  private fresh(page: LogPage, above: readonly LogLine[] = []): Partial<Snapshot> {
    return {
      rows: [...above, ...page.lines].map(row),
      total: page.total,
      next: page.next,
      atEnd: page.next >= page.total,
    };
  }

  up() {
    const before = this.previous;
    if (before === null || !this.state.above) return;
    return this.read(async () => {
      const page = await this.page({ before, limit: PAGE });
      this.previous = page.previous;
      const rows = [...page.lines.map(row), ...this.state.rows];
      const kept = rows.slice(0, MOST);
      const cut = kept.length < rows.length;
      const last = kept.at(-1);
      return {
        rows: kept,
        total: page.total,
        above: page.previous !== null,
        ...(cut && last ? { next: numberOf(last) + 1, atEnd: false } : {}),
      };
    });
  }

  down() {
    if (this.state.atEnd) return;
    return this.read(async () => {
      const page = await this.page({ from: this.state.next, limit: PAGE });
      return { ...this.grown(page.lines.map(row)), total: page.total, next: page.next, atEnd: page.next >= page.total };
    });
  }

  private grown(more: readonly Row[]): Partial<Snapshot> {
    const rows = [...this.state.rows, ...more];
    const kept = rows.slice(-MOST);
    const first = kept[0];
    if (kept.length < rows.length && first) this.previous = numberOf(first);
    return { rows: kept, above: this.state.above || kept.length < rows.length };
  }

  /** Lines that a follower was sent; `more` in their order. */
  append(more: readonly Row[]) {
    const fresh = more.filter((row) => numberOf(row) >= this.state.next);
    const last = fresh.at(-1);
    if (!last) return;
    const next = ("gap" in last ? last.gap.to : last.line.n) + 1;
    this.set({ ...this.grown(fresh), next, total: Math.max(this.state.total, next) });
  }
}

export const row = (line: LogLine): LineRow => ({ key: `${line.n}`, line });
export const gapRow = (gap: GapRow["gap"]): GapRow => ({ key: `gap ${gap.from}`, gap });
const numberOf = (row: Row) => ("gap" in row ? row.gap.from : row.line.n);
