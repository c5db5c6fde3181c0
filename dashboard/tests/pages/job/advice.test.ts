import { expect, test } from "vitest";

import { advise, findException } from "../../../src/pages/job/advice";

test("the exception is the last line that looks like one, whatever its colours", () => {
  const lines = [
    "ValueError: first",
    "During handling of the above exception, another exception occurred:",
    "\x1b[1;35mtorch.OutOfMemoryError\x1b[0m: \x1b[35mCUDA out of memory\x1b[0m",
    "[rank0] shutting down",
  ];
  expect(findException(lines)).toBe(2);
});

test("without an exception, the last line that complains; or none", () => {
  expect(findException(["start", "bash: tran.py: No such file or directory", "bye"])).toBe(1);
  expect(findException(["start", "bye"])).toBe(-1);
  expect(findException([])).toBe(-1);
});

test.each([
  ["learner 1: exit code 1; its last lines:\n  torch.OutOfMemoryError: CUDA out of memory.", "C201", /GPU's memory/],
  ["learner 1: killed by signal 9 (SIGKILL): out of memory", "C201", /Ask for more by memory/],
  ["learner 1: exit code 1; its last lines:\n  ModuleNotFoundError: No module named 'einops'", "C201", /lacks a package/],
  ["can never fit", "S100", /No node can ever/],
])("%s", (reason, code, advice) => {
  expect(advise(reason, code)).toMatch(advice);
});

test("where nothing better is known than to read the log, nothing is advised", () => {
  expect(advise("learner 1: exit code 3", "C201")).toBeNull();
  expect(advise("learner 1: exit code 3", null)).toBeNull();
});
