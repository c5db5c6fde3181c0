"""The example llm-finetune as it is, on a tiny language model: it learns, and what it stores can be loaded."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest
import yaml
from tests.e2e.stack import PROGRAMS, REPOSITORY, alive, eventually
from tests.environments import FIRST_RUN
from tests.processes import all_processes
from tests.programs.machine import Machine, tiny_llm

EXAMPLE = REPOSITORY / "examples/llm-finetune"
EVALUATE = "python evaluate.py $RESULT_DIR $DATA_DIR --length 128"
# The merged model, and the adapter on the pretrained one: in one process, as imports take most of the time.
EVALUATE_BOTH = """python - <<'END'
import os, runpy, sys
for more in ([], ["--base", os.environ["PRETRAINED_DIR"]]):
    sys.argv = ["evaluate.py", os.environ["RESULT_DIR"], os.environ["DATA_DIR"], "--length", "128", *more]
    runpy.run_path("evaluate.py", run_name="__main__")
END"""

pytestmark = pytest.mark.timeout(FIRST_RUN)  # the first job builds its packages


@pytest.fixture(scope="module")
def animals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llm(tmp_path_factory.mktemp("animals"), 800)


def command_of(manifest: str) -> str:
    command: str = yaml.safe_load((EXAMPLE / manifest).read_text())["framework"]["command"]
    return command


def perplexities(said: Iterable[str]) -> tuple[list[float], list[float]]:
    """What train.py has printed, and what evaluate.py has printed about the stored model."""
    text = "\n".join(said)
    trained = re.findall(r"^step \d+/\d+  validation loss \S+  perplexity (\S+)", text, re.MULTILINE)
    evaluated = re.findall(r"^perplexity: (\S+)", text, re.MULTILINE)
    return [float(value) for value in trained], [float(value) for value in evaluated]


def test_a_language_model_learns_with_lora(machine: Machine, animals: Path, tmp_path: Path) -> None:
    """From a snapshot of the Hub. The adapter on the model, and the merged model, are as good as the job has said."""
    folders = ("--data", animals / "sentences", "--pretrained", animals / "hub")
    command = f"framework.command={command_of('manifest.yml')} && {EVALUATE_BOTH}"
    said = machine.run(EXAMPLE / "manifest.yml", EXAMPLE, tmp_path, *folders, "--set", command).splitlines()
    trained, evaluated = perplexities(said)
    assert trained[-1] < trained[0] / 20, said
    assert evaluated == pytest.approx([trained[-1]] * 2, rel=0.02)
    assert sum(line.startswith("text: ") for line in said) == 2
    out = tmp_path / "out"
    with (out / "metrics.csv").open() as file:
        names = [row["name"] for row in csv.DictReader(file)]
    assert names.count("validation/perplexity") == len(trained)
    assert {"train/loss", "train/tokens_per_second"} < set(names)
    for name in ("adapter/adapter_model.safetensors", "model/model.safetensors"):
        assert (out / "results" / name).stat().st_size > 0


def stored(folder: Path, files: int) -> bool:
    """Whether a learner has stored a checkpoint of so many files."""
    return any(len(json.loads(path.read_text())["files"]) == files for path in folder.glob("generations/*.json"))


def is_the_second(process: psutil.Process, go: Path) -> bool:
    """Whether it is the second learner's program, not a shell around it."""
    words = process.cmdline()
    return str(go) in words and "train.py" in words and process.environ()["LEARNER_ID"] == "2"


def test_a_language_model_is_sharded_over_two_learners(machine: Machine, animals: Path, tmp_path: Path) -> None:
    """A learner is killed; later another job goes on from the shards, alone, and its model can be loaded.

    That two learners go on from the shards of two: tests/e2e/test_examples.py."""
    code, go, out = tmp_path / "code", tmp_path / "go", tmp_path / "out"
    shutil.copytree(EXAMPLE, code)
    shutil.copy2(PROGRAMS / "braked.py", code)
    command = command_of("manifest-fsdp.yml").removeprefix("python ")
    braked = f"python braked.py torch.distributed.checkpoint.save {go} 600 {command}"
    folders = ("--data", animals / "sentences", "--pretrained", animals / "hub")
    changes = {"framework.command": braked, "checkpoint.every": "1s", "retries": "0"}
    options = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]

    with machine.running(code / "manifest-fsdp.yml", code, tmp_path, *folders, *options) as process:
        assert process.stdout
        assert process.stderr
        said = []
        for line in process.stdout:
            said.append(line.rstrip())
            if re.match(r"\[1\] step 20/\d+  validation", line):
                break
        eventually(lambda: stored(out / "checkpoints", 2), "the first one's shard, and the list of all shards", 600)
        eventually(lambda: stored(out / "checkpoints/learner-2", 1), "the second one's shard", 600)
        [victim] = alive(all_processes(), lambda process: is_the_second(process, go))
        victim.kill()
        said += [line.rstrip() for line in process.stdout]  # communicate() would miss what has been read ahead
        errors = process.stderr.read()
    assert process.returncode == 10, errors
    assert "learner 2 was killed by signal 9 (SIGKILL)" in errors, errors
    begins = {line[: len("[1] rank 0 of 2 on cpu trains 51,")] for line in said}
    assert {f"[{rank + 1}] rank {rank} of 2 on cpu trains 51," for rank in (0, 1)} <= begins
    begun, _ = perplexities(line.removeprefix("[1] ") for line in said)

    alone = ("--resume", "--learners", "1", "--set", f"framework.command=python {command} && {EVALUATE}")
    said = machine.run(code / "manifest-fsdp.yml", code, tmp_path, *folders, *alone).splitlines()
    assert "resuming from step-000020" in said
    trained, evaluated = perplexities(said)
    assert trained[-1] < begun[0] / 20, said
    assert evaluated == pytest.approx([trained[-1]], rel=0.02)
    assert (out / "results/model/model.safetensors").stat().st_size > 0
