// What a job's reason says about its failure: the headline, what helps, and the end of the learner's log.
import type { JobDetail, LogLine } from "../../api/types";
import { plainText } from "../../ui/ansi";
import { headlineOf } from "../../ui/reason";

export interface Failure {
  /** How it ended: `learner 1 exited with code 1`. */
  headline: string;
  /** What the API advises; "" if nothing. */
  advice: string;
  /** The last lines of the learner's log, with their colours. */
  lines: string[];
}

export function readFailure(reason: string): Failure {
  const [, ...rest] = reason.split("\n");
  const said = headlineOf(reason);
  const cut = said.indexOf("; ");
  return {
    headline: cut < 0 ? said : said.slice(0, cut),
    advice: cut < 0 ? "" : said.slice(cut + 2),
    lines: rest.map((line) => line.replace(/^ {2}/, "")),
  };
}

/** The end of a traceback, as the learner recognises it (weft_trainer.program.hints). */
const EXCEPTION = /^(?:\[[^\]]*\]:? ?)*((?:[A-Za-z_]\w*\.)*\w+(?:Error|Exception|Interrupt|Exit|Warning)\b)(?:: (.*))?$/;
const TRACEBACK = "Traceback (most recent call last)";
const CHAINED = /^(?:During handling of the above exception|The above exception was the direct cause)/;

/** Where the last exception is among these lines; null if there is none. */
export function findException(lines: readonly string[]): { at: number; name: string; message: string } | null {
  for (let at = lines.length - 1; at >= 0; at -= 1) {
    const found = EXCEPTION.exec(plainText(lines[at] ?? "").trimEnd());
    if (found?.[1]) return { at, name: found[1], message: found[2] ?? "" };
  }
  return null;
}

const MOST_LINES = 40;
const FEW_LINES = 10;

/** The lines that show a failure: the last traceback with its causes, else the last lines. */
export function excerpt(lines: readonly LogLine[]): readonly LogLine[] {
  const texts = lines.map((line) => plainText(line.text));
  const exception = findException(texts);
  if (!exception) return lines.slice(-FEW_LINES);
  const above = (at: number) => texts.slice(0, at + 1).findLastIndex((text) => text.includes(TRACEBACK));
  let from = above(exception.at);
  while (from > 0) {
    const before = texts.slice(0, from).findLastIndex((text) => text.trim() !== "");
    if (before < 0 || !CHAINED.test(texts[before] ?? "")) break;
    from = above(before);
  }
  if (from < 0) from = Math.max(0, exception.at - FEW_LINES);
  return lines.slice(Math.max(from, exception.at - MOST_LINES), exception.at + FEW_LINES);
}

/** The attempt that failed last, and its learner that failed first; undefined where no learner is to blame. */
export function failedLearner(job: Pick<JobDetail, "attempts" | "reason">): { attempt?: number; learner?: number } {
  const attempt = job.attempts.at(-1);
  if (!attempt) return {};
  const named = /^learner (\d+)\b/.exec(job.reason)?.[1];
  const learner = named
    ? Number(named)
    : attempt.learners.find((other) => other.exit_code !== null && other.exit_code !== 0)?.learner;
  return learner === undefined ? { attempt: attempt.n } : { attempt: attempt.n, learner };
}

/** What usually helps, where the API has no advice of its own. */
export function usualAdvice(failure: Failure): string {
  const { headline: how } = failure;
  if (/never fit/.test(how)) return "Ask for less per learner, or name another engine. The page *Cluster* shows what each engine has.";
  if (/out of memory/.test(how) && !/GPU/.test(how)) return "Ask for more `memory` in the manifest, or make the batches smaller.";
  if (/command not found|not executable/.test(how)) return "Check `framework.command`, and that the code which you submitted contains the file.";
  if (/vanished|lost with its node|agent ended/.test(how)) return "The program is not to blame. Resume the job, or allow `retries` in the manifest.";
  if (/storage/.test(how)) return "Ask for more `storage` in the manifest, or write less.";
  return "Correct the code, and rerun the job. If a checkpoint is left, *Resume* starts from it.";
}
