/**
 * The time that a user typed: a date, or a clock time such as 14:03 or 14:03:20. A clock time is the first one after
 * the job began (or in the minute before it: clocks differ). Null if the text is neither.
 */
export function readTime(text: string, began: Date): Date | null {
  const clock = /^(\d{1,2}):(\d{2})(?::(\d{2}))?$/.exec(text);
  if (!clock) {
    const at = new Date(text);
    return text && !Number.isNaN(at.getTime()) ? at : null;
  }
  const at = new Date(began);
  at.setHours(Number(clock[1]), Number(clock[2]), Number(clock[3] ?? 0), 0);
  if (at.getTime() < began.getTime() - 60_000) at.setDate(at.getDate() + 1);
  return at;
}
