// Times, spans and sizes as people read them.
const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function size(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < SIZES.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${SIZES[unit]}`;
}

/** `seconds` in its two largest units: 3 d 4 h, 2 m 07 s, 0.8 s. */
export function span(seconds: number): string {
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
  const whole = Math.round(seconds);
  const parts: [number, string][] = [
    [Math.floor(whole / 86_400), "d"],
    [Math.floor((whole % 86_400) / 3600), "h"],
    [Math.floor((whole % 3600) / 60), "m"],
    [whole % 60, "s"],
  ];
  const first = parts.findIndex(([value]) => value > 0);
  return parts
    .slice(first, first + 2)
    .map(([value, unit], place) => `${place ? String(value).padStart(2, "0") : value} ${unit}`)
    .join(" ");
}

export const since = (from: string | number, to: string | number) =>
  span((new Date(to).getTime() - new Date(from).getTime()) / 1000);

/** How long ago, in one unit. */
export function ago(at: string, now = Date.now()): string {
  const seconds = (now - new Date(at).getTime()) / 1000;
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  if (seconds < 86_400 * 30) return `${Math.floor(seconds / 86_400)} d ago`;
  return new Date(at).toLocaleDateString();
}

const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});
export const clock = (at: string | number) => CLOCK.format(new Date(at));

// As toLocaleString() writes it, which takes 15 times as long.
const DATE_TIME = new Intl.DateTimeFormat(undefined, {
  year: "numeric",
  month: "numeric",
  day: "numeric",
  hour: "numeric",
  minute: "numeric",
  second: "numeric",
  hourCycle: "h23",
});
export const dateTime = (at: string | number) => DATE_TIME.format(new Date(at));

/** A metric's value: enough digits to compare, no more. */
export function value(of: number | null | undefined): string {
  if (of === null || of === undefined) return "–";
  if (!Number.isFinite(of)) return String(of);
  const size = Math.abs(of);
  if (size !== 0 && (size >= 1e6 || size < 1e-4)) return of.toExponential(3);
  return String(Number(of.toPrecision(5)));
}

export const plural = (count: number, singular: string, many = `${singular}s`) =>
  `${count.toLocaleString()} ${count === 1 ? singular : many}`;
