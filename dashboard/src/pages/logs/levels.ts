// Levels as programs write them: loguru, logging, absl, Rich, glog.
export type Level = "error" | "warning";

const ERROR = "ERROR|CRITICAL|FATAL|Traceback \\(most recent call last\\)|[A-Za-z]+(?:Error|Exception):";
const WARNING = "WARN|WARNING|[A-Za-z]+Warning:";

/** What a line of the level, or of a worse one, has; for the API's search, which is by RE2, and for this page. */
export const LEVELS: Record<Level, string> = { error: `(?:${ERROR})`, warning: `(?:${ERROR}|${WARNING})` };

const BEGINNING = 240; // characters in which a level is looked for
const [IS_ERROR, IS_WARNING] = [new RegExp(LEVELS.error), new RegExp(LEVELS.warning)];

/** The level of a line; null for all that is no warning. */
export function levelOf(line: string): Level | null {
  const beginning = line.slice(0, BEGINNING);
  if (!IS_WARNING.test(beginning)) return null;
  return IS_ERROR.test(beginning) ? "error" : "warning";
}
