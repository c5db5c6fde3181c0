// The level of a log line, by the words that logging libraries write. Each pattern is valid in JavaScript and in RE2, as
// the server searches with the same patterns.
export const LEVELS = ["error", "warning", "info"] as const;
export type Level = (typeof LEVELS)[number] | "debug";

/** A line's beginning, or what is no letter, or a colour: `\x1b[31mERROR`. */
const BEFORE = String.raw`(?:^|[^A-Za-z]|\x1b\[[0-9;]*m)`;
const FIRST = String.raw`^(?:\x1b\[[0-9;]*m)*`;

/** A level as a word in capitals, as `level=warn` or `"level": "warn"`, or as Google's libraries write it: W0131 12:00. */
const named = (words: string, letter: string) => {
  const [upper, lower] = [words, words.toLowerCase()];
  return [
    `${BEFORE}(?:${upper})(?:[^A-Za-z]|$)`,
    String.raw`[Ll]evel"?[=:] ?"?(?:${upper}|${lower})(?:[^A-Za-z]|$)`,
    String.raw`${FIRST}[${letter}][0-9]{4} [0-9]{2}:`,
  ].join("|");
};

const PATTERNS: Record<Level, string> = {
  error: [
    named("ERROR|CRITICAL|FATAL", "EF"),
    String.raw`${FIRST}Traceback \(most recent call last\)`,
    String.raw`${FIRST}[A-Za-z_][\w.]*(?:Error|Exception)(?::|$)`,
  ].join("|"),
  warning: [named("WARNING|WARN", "W"), String.raw`[A-Za-z]Warning: `].join("|"),
  info: named("INFO|NOTICE", "I"),
  debug: named("DEBUG|TRACE", "D"),
};
const ANY = new RegExp(
  Object.entries(PATTERNS)
    .map(([level, pattern]) => `(?<${level}>${pattern})`)
    .join("|"),
);

/** The level that the line names first; null if it names none. */
export function levelOf(text: string): Level | null {
  const groups = ANY.exec(text)?.groups;
  return (groups && (Object.keys(PATTERNS) as Level[]).find((level) => groups[level] !== undefined)) ?? null;
}

/** Whether a line has this level or a graver one. */
export function reaches(text: string, level: Level): boolean {
  const found = levelOf(text);
  return found !== null && rank(found) <= rank(level);
}

/** A pattern for the server's search, which finds all lines of this level or a graver one, and some others. */
export const patternOf = (level: Level) =>
  LEVELS.slice(0, rank(level) + 1)
    .map((graver) => PATTERNS[graver])
    .join("|");

const rank = (level: Level) => (Object.keys(PATTERNS) as Level[]).indexOf(level);
