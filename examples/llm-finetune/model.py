"""Language models and texts in folders, for train.py and evaluate.py."""

import json
import os
import sys
from pathlib import Path

# The model lies in a folder: transformers need not ask the Hub. The manifest's `env` can set other values.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
if "JOB_STATE_DIR" in os.environ:  # all that transformers keeps is removed with the learner
    os.environ.setdefault("HF_HOME", f"{os.environ['JOB_STATE_DIR']}/huggingface")

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

logging.disable_progress_bar()  # the job's log keeps lines


def find(folder: Path) -> Path:
    """The folder of the model's config.json: ``folder``, one below it, or a snapshot of the Hub's cache.

    The cache has models--ORGANIZATION--NAME/snapshots/REVISION/config.json, and the newest revision in refs/main.
    """
    configs = list(folder.rglob("config.json"))
    if not configs:
        sys.exit(f"{folder} has no config.json: a model has config.json, weights and the tokenizer's files")
    top = min(len(path.parts) for path in configs)  # some models have another config.json below, such as onnx/
    found = sorted(path.parent for path in configs if len(path.parts) == top)
    if len(found) > 1:
        newest = [path for path in found if path.name in (ref.read_text().strip() for ref in folder.rglob("refs/main"))]
        if len(newest) != 1:
            sys.exit(f"several models: {', '.join(str(path.relative_to(folder)) for path in found)}; upload one")
        found = newest
    return found[0]


def name(folder: Path) -> str | None:
    """ORGANIZATION/NAME, if the folder's path is that of the Hub's cache."""
    for part in folder.parts:
        if part.startswith("models--"):
            return part.removeprefix("models--").replace("--", "/", 1)
    return None


def load(folder: Path, dtype="auto"):
    """The model, on the CPU. "auto": in the precision in which it is stored."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)


def read_texts(folder: Path) -> list[str]:
    """The field `text` of each line of *.jsonl, and each *.txt as a whole."""
    texts = []
    for path in sorted([*folder.rglob("*.jsonl"), *folder.rglob("*.txt")]):
        if path.suffix == ".txt":
            texts.append(path.read_text(encoding="utf-8"))
            continue
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                record = json.loads(line) if line.strip() else {"text": ""}
                if not isinstance(record, dict) or not isinstance(record.get("text"), str):
                    sys.exit(f"{path.name}, line {number}: no field 'text'")
                texts.append(record["text"])
    if not any(texts):
        sys.exit(f"{folder} has no text: neither *.jsonl with a field 'text', nor *.txt")
    return texts


def read_blocks(folder: Path, tokenizer: AutoTokenizer, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All texts one after the other, cut into blocks of so many tokens: those to train on, and every 20th, held out."""
    tokens = []
    for ids in tokenizer([text for text in read_texts(folder) if text], add_special_tokens=False)["input_ids"]:
        tokens += [*ids, tokenizer.eos_token_id]
    count = len(tokens) // length
    if count < 2:
        sys.exit(f"the texts have {len(tokens):,} tokens; two blocks of {length} are needed: set --length")
    blocks = torch.tensor(tokens[: count * length]).view(count, length)
    held_out = torch.arange(count) % 20 == min(19, count - 1)
    return blocks[~held_out], blocks[held_out]
