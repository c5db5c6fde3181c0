// What a failed job's last lines say, and what its user can do about it.
import { plain } from "../../ui/quoted";

const EXCEPTION = /^(?:[\w.]+\.)?\w*(?:Error|Exception|Exit|Interrupt|Fault|Failure|Timeout)\b(?::|$)/;
const OTHER = /\b(?:error|fatal|panic|killed|segmentation fault|not found|no such file)\b/i;

/** Where the exception stands among the lines: the last that looks like one, else the last that complains. */
export function findException(lines: readonly string[]): number {
  const texts = lines.map((line) => plain(line).trim());
  const last = (pattern: RegExp) => texts.findLastIndex((text) => pattern.test(text));
  const found = last(EXCEPTION);
  return found >= 0 ? found : last(OTHER);
}

/** A pattern of what failed, and the advice. The first that fits counts. */
const ADVICE: [RegExp, string][] = [
  [
    /CUDA out of memory|CUDA error: out of memory|OutOfMemoryError/i,
    "The GPU's memory was not enough. Make the batch smaller and accumulate gradients, save activations (checkpointing, " +
      "mixed precision), or ask for GPUs with more memory by gpu_type.",
  ],
  [
    /SIGKILL\)?[:,] out of memory|MemoryError|exit code 137/i,
    "The learner used more memory than it has. Ask for more by memory in the manifest, or load less at once: fewer " +
      "loader processes, smaller batches.",
  ],
  [/No space left on device|used more storage/i, "The disk is full. Ask for more by storage, or keep fewer checkpoints."],
  [
    /ModuleNotFoundError|ImportError|No module named/i,
    "The image lacks a package. Name it under framework.packages in the manifest; imports that fail for another reason " +
      "say so in the lines above.",
  ],
  [
    /NCCL|Gloo|c10d|connect(?:ion)? (?:refused|reset|closed by peer)/i,
    "A learner lost the others. Mostly another learner failed first: look at the beginning of the end in all learners' " +
      "logs.",
  ],
  [
    /FileNotFoundError|No such file or directory|command not found|exit code 127/i,
    "A file is not where the program looks for it. Paths are relative to the code's folder; data is under DATA_DIR, and " +
      "results go to RESULT_DIR.",
  ],
  [/PermissionError|Permission denied/i, "The program may not write there. Write to RESULT_DIR, CHECKPOINT_DIR or the code's folder."],
  [/SyntaxError|IndentationError|NameError|TypeError|AttributeError|KeyError|IndexError|ValueError/, "The program has an error. Mend it, and rerun the job with the new code."],
];
/** By the error's code, where the lines say nothing. */
const BY_CODE: Record<string, string> = {
  S100: "No node can ever hold a learner of this size. Ask for less, or for another engine: the page Cluster has what there is.",
  S101: "The engine could not start the learners. The events say why; if the cluster is to blame, rerun the job later.",
  S103: "The image could not be used. Check framework.name, framework.version and image in the manifest.",
  S104: "A learner vanished, with its node or its process. With retries in the manifest, Weft tries again by itself from the last checkpoint.",
  S301: "The pretrained model could not be read. Check that it exists, and the data store's credentials.",
  S302: "The data could not be read. Check the container, the path and the data store's credentials.",
  S303: "The results could not be stored. Check that the data store's credentials may write to the container.",
  C102: "The code could not be unpacked or started. Check the archive, and the command in the manifest.",
};

/** What to do about a failure; null where nothing better is known than to read the log. */
export function advise(reason: string, code: string | null): string | null {
  const text = reason.split("\n").map(plain).join("\n");
  const own = code !== "C201" && code ? BY_CODE[code] : undefined;
  return own ?? ADVICE.find(([pattern]) => pattern.test(text))?.[1] ?? null;
}
