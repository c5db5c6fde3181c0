"""Programs for popular libraries, as users write them for clusters: two learners of Weft make one gang of each.

A folder has a program and the manifest that it needs, or only a manifest, for a program that comes with its package.

Each rank's last line is ``world 2 rank 1 parameters SUM``. The ranks train on different data, so that they have the
same parameters only if they have shared their gradients.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.environments import FIRST_RUN
from tests.programs.machine import Machine

HERE = Path(__file__).parent
PROGRAMS = sorted(path.parent.name for path in HERE.glob("*/train.py"))

pytestmark = pytest.mark.timeout(FIRST_RUN)  # the first job with a package installs it


def run(name: str, machine: Machine, work: Path, *options: str | Path) -> str:
    return machine.run(HERE / name / "manifest.yml", HERE / name, work, *options)


@pytest.mark.parametrize("name", PROGRAMS)
def test_two_learners_are_one_gang(name: str, machine: Machine, tmp_path: Path) -> None:
    said = run(name, machine, tmp_path)
    found = re.findall(r"^\[(\d)\] world (\d) rank (\d) parameters (\S+)$", said, re.MULTILINE)
    assert sorted(line[:3] for line in found) == [("1", "2", "0"), ("2", "2", "1")], said
    assert len({parameters for *_, parameters in found}) == 1, said


def test_trls_own_script(machine: Machine, language_model: Path, tmp_path: Path) -> None:
    """The script ``sft`` of TRL's package fine-tunes a model on texts. 16 of 32 texts are half an epoch.

    It names the model as on the Hub. The model comes as a folder of the Hub's cache.
    """
    data, hub = language_model / "sentences", language_model / "hub"
    said = run("trl_sft", machine, tmp_path, "--data", data, "--pretrained", hub)
    # Two steps of four texts: a learner on its own would have trained on a quarter of them.
    assert re.search(r"^\[1\] .*'epoch': '?0\.5'?", said, re.MULTILINE), said
    assert (tmp_path / "out/results/model.safetensors").stat().st_size > 0


def test_trls_own_script_for_preferences(machine: Machine, language_model: Path, tmp_path: Path) -> None:
    """The script ``dpo`` teaches a model which of two answers is better. Its loss begins at ln 2 for any model."""
    choices = [{"prompt": f"Cat {number}", "chosen": " sleeps.", "rejected": " barks."} for number in range(8)]
    (tmp_path / "choices").mkdir()
    (tmp_path / "choices/train.jsonl").write_text("\n".join(map(json.dumps, choices)))
    said = run("trl_dpo", machine, tmp_path, "--data", tmp_path / "choices", "--pretrained", language_model / "hub")
    losses = [float(found) for found in re.findall(r"{'loss': '?([\d.]+)", said)]
    assert losses[0] == pytest.approx(0.6931, abs=1e-4), said
    assert len(losses) == 2
    assert (tmp_path / "out/results/out/model.safetensors").stat().st_size > 0


def test_rl_zoos_own_program(machine: Machine, tmp_path: Path) -> None:
    """The program ``rl_zoo3.train`` learns to balance a pole. Its manifest names neither its files nor its metrics."""
    run("rl_zoo3", machine, tmp_path)
    kept = tmp_path / "out/results/workdir/logs/ppo/CartPole-v1_1"
    assert (kept / "CartPole-v1.zip").stat().st_size > 0
    assert (kept / "CartPole-v1/config.yml").read_text()
    names = {line.partition(",")[0] for line in (tmp_path / "out/metrics.csv").read_text().splitlines()}
    assert {"rollout/ep_rew_mean", "train/loss"} <= names, "the program has written TensorBoard's files"


def test_weights_and_biases_keeps_its_offline_run(machine: Machine, tmp_path: Path) -> None:
    run("wandb", machine, tmp_path)
    [kept] = (tmp_path / "out/results/workdir/wandb").glob("offline-run-*/run-*.wandb")
    assert kept.stat().st_size > 0


def test_a_program_may_compile_a_part_of_itself(machine: Machine, tmp_path: Path) -> None:
    assert "sum 7" in run("compiled", machine, tmp_path)
