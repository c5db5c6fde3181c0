import { expect, test } from "vitest";

import { languageOf } from "../../src/ui/highlight";

test.each([
  ["manifest.yml", "yaml"],
  ["a/b.YAML", "yaml"],
  ["train.py", "python"],
  ["metrics.jsonl", "json"],
  ["notebook.ipynb", "json"],
  ["run.sh", "bash"],
  ["README", null],
  ["data.pyc", null],
  ["py", null],
])("the language of %s is %s", (path, language) => expect(languageOf(path)).toBe(language));
