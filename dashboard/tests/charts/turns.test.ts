import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { Turns } from "../../src/charts/turns";

let turns: Turns;
let gone: string[];

beforeEach(() => {
  vi.useFakeTimers();
  turns = new Turns();
  gone = [];
});
afterEach(() => vi.useRealTimers());

/** A chart so many px below the middle of the window, which reaches 400 px from there. */
const chart = (name: string, distance: number) =>
  turns.wait({ distance: () => Math.abs(distance), inSight: () => Math.abs(distance) < 400, go: () => gone.push(name) });

/** Scrolls for so many ms, in steps of a frame. */
function scroll(ms: number): void {
  for (let past = 0; past < ms; past += 16) {
    turns.scrolled();
    vi.advanceTimersByTime(16);
  }
}

test("at rest, all that are in sight go at once, then the others", () => {
  for (const [at, distance] of [600, -300, 0, 300, -600].entries()) chart(`${at}`, distance);
  expect(gone).toEqual([]);
  vi.advanceTimersByTime(1);
  expect(gone).toEqual(["1", "2", "3"]);
  vi.advanceTimersByTime(300);
  expect(gone).toEqual(["1", "2", "3", "0", "4"]);
  chart("new", 0);
  vi.advanceTimersByTime(1);
  expect(gone.at(-1)).toBe("new");
});

test("while the page is scrolled, one after the other goes, the nearest to the middle first", () => {
  turns.scrolled();
  for (const [at, distance] of [600, -300, 10, 300, -600].entries()) chart(`${at}`, distance);
  scroll(100);
  expect(turns.atRest()).toBe(false);
  expect(gone).toEqual(["2"]);
  scroll(500);
  expect(gone).toEqual(["2", "1", "3"]);
  vi.advanceTimersByTime(120);
  expect(turns.atRest()).toBe(true);
  expect(gone).toHaveLength(5); // out of sight, but they have waited long enough
});

test("a chart that has passed before its turn never goes", () => {
  turns.scrolled();
  chart("first", 0);
  const leave = chart("passes", 10);
  scroll(100);
  leave();
  scroll(1000);
  vi.advanceTimersByTime(1000);
  expect(gone).toEqual(["first"]);
});

test("a chart that comes while others wait out of sight goes at once", () => {
  chart("below", 600);
  vi.advanceTimersByTime(100);
  chart("in sight", 0);
  vi.advanceTimersByTime(1);
  expect(gone).toEqual(["in sight"]);
  vi.advanceTimersByTime(600);
  expect(gone).toEqual(["in sight", "below"]);
});
