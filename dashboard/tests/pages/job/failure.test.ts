import { expect, test } from "vitest";

import type { LogLine } from "../../../src/api/types";
import { excerpt, failedLearner, findException, readFailure, usualAdvice } from "../../../src/pages/job/failure";
import { headlineOf } from "../../../src/ui/reason";

const REASON = [
  "learner 2 exited with code 1; `framework: {packages: [timm]}` adds what is missing; its last lines:",
  "  Traceback (most recent call last):",
  '    File "train.py", line 3, in <module>',
  "  \u001b[1;35mModuleNotFoundError\u001b[0m: \u001b[35mNo module named 'timm'\u001b[0m",
].join("\n");
const numbered = (texts: string[]) => texts.map((text, at) => ({ n: at + 1, text }) as LogLine);

test("a reason is a headline, an advice and the lines of the log with their indentation", () => {
  const failure = readFailure(REASON);
  expect(failure.headline).toBe("learner 2 exited with code 1");
  expect(failure.advice).toBe("`framework: {packages: [timm]}` adds what is missing");
  expect(failure.lines[1]).toBe('  File "train.py", line 3, in <module>');
  expect(headlineOf(REASON)).not.toContain("last lines");
  expect(readFailure("completed")).toEqual({ headline: "completed", advice: "", lines: [] });
});

test("the last exception is found under its colours", () => {
  const { lines } = readFailure(REASON);
  expect(findException(lines)).toEqual({ at: 2, name: "ModuleNotFoundError", message: "No module named 'timm'" });
  expect(findException(["ValueError: early", "torch.OutOfMemoryError: CUDA out of memory", "bye"])?.name).toBe(
    "torch.OutOfMemoryError",
  );
  expect(findException(["all is well", "No Error here"])).toBeNull();
});

test("an excerpt begins with the last traceback", () => {
  const texts = ["step 1", "Traceback (most recent call last):", "  File x", "KeyError: 'a'", "step 2",
    "Traceback (most recent call last):", "  File y", "ValueError: b", "done"];
  expect(excerpt(numbered(texts)).map((line) => line.n)).toEqual([6, 7, 8, 9]);
  const chained = ["step", "Traceback (most recent call last):", "KeyError: 'a'", "",
    "During handling of the above exception, another exception occurred:", "", "Traceback (most recent call last):", "ValueError: b"];
  expect(excerpt(numbered(chained)).map((line) => line.n)).toEqual([2, 3, 4, 5, 6, 7, 8]);
  expect(excerpt(numbered(Array.from({ length: 30 }, (_, at) => `step ${at}`)))).toHaveLength(10);
});

test("the learner to blame is that of the reason, else the first that ended with an error", () => {
  const learners = [{ learner: 1, exit_code: 0 }, { learner: 2, exit_code: 137 }];
  const job = (reason: string) => ({ reason, attempts: [{ n: 3, learners }] }) as unknown as Parameters<typeof failedLearner>[0];
  expect(failedLearner(job("learner 1 vanished"))).toEqual({ attempt: 3, learner: 1 });
  expect(failedLearner(job("the gang ended"))).toEqual({ attempt: 3, learner: 2 });
  expect(failedLearner({ reason: "never started", attempts: [] })).toEqual({});
});

test("where the API advises nothing, the page does", () => {
  expect(usualAdvice(readFailure("learner 1 was killed: out of memory (limit 2 GiB)"))).toContain("memory");
  expect(usualAdvice(readFailure("learner 1 exited with code 1"))).toContain("rerun");
});
