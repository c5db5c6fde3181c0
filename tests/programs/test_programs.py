"""Programs for popular libraries, as users write them for clusters: two learners of Weft make one gang of each.

A folder has a program and the manifest that it needs, or only a manifest, for a program that comes with its package.

Each rank's last line is ``world 2 rank 1 parameters SUM``. The ranks train on different data, so that they have the
same parameters only if they have shared their gradients.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.stack import ENVIRONMENTS, REPOSITORY
from tests.environments import FIRST_RUN

HERE = Path(__file__).parent
PROGRAMS = sorted(path.parent.name for path in HERE.glob("*/train.py"))

pytestmark = pytest.mark.timeout(FIRST_RUN)  # the first job with a package installs it


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of all programs. Each list of packages is built once on a machine, as environments are, and built anew after a
    change of the code that builds it. The build itself: tests/e2e/test_packages.py."""
    home = tmp_path_factory.mktemp("home")
    code = sorted((REPOSITORY / "trainer_images/runtime/weft_trainer/packages").glob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in code)).hexdigest()[:12]
    kept = Path(ENVIRONMENTS) / f"packages-{digest}"
    kept.mkdir(parents=True, exist_ok=True)
    (home / ".cache/weft").mkdir(parents=True)
    (home / ".cache/weft/packages").symlink_to(kept)
    return home


def run(name: str, home: Path, work: Path, *options: str | Path) -> str:
    """What the learners print; ``[2] …`` is of the second."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("WEFT_", "HF_", "AWS_"))}
    with (Path(ENVIRONMENTS) / "packages.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a build that another process has begun would be refused
        done = subprocess.run(
            ["weft", "run", str(HERE / name / "manifest.yml"), str(HERE / name), "--out", work / "out", *options],
            cwd=work,
            env=environment
            | {
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "HOME": str(home),
                "WEFT_ENVIRONMENTS_DIR": ENVIRONMENTS,
                "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache/uv")),
            },
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "COMPLETED" in done.stderr
    return done.stdout


@pytest.mark.parametrize("name", PROGRAMS)
def test_two_learners_are_one_gang(name: str, home: Path, tmp_path: Path) -> None:
    said = run(name, home, tmp_path)
    found = re.findall(r"^\[(\d)\] world (\d) rank (\d) parameters (\S+)$", said, re.MULTILINE)
    assert sorted(line[:3] for line in found) == [("1", "2", "0"), ("2", "2", "1")], said
    assert len({parameters for *_, parameters in found}) == 1, said


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the Hub's cache with the tiny model as `team/tiny`, and beside it 32 sentences."""
    folder = tmp_path_factory.mktemp("llm")
    subprocess.run([sys.executable, REPOSITORY / "examples/data/tiny_llm.py", folder, "32"], check=True)
    cached = folder / "hub/models--team--tiny"
    snapshot = cached / "snapshots/0a1b2c3d"
    snapshot.parent.mkdir(parents=True)
    (folder / "model").rename(snapshot)
    (cached / "refs").mkdir()
    (cached / "refs/main").write_text(snapshot.name)
    return folder


def test_trls_own_script(home: Path, language_model: Path, tmp_path: Path) -> None:
    """The script ``sft`` of TRL's package fine-tunes a model on texts. 16 of 32 texts are half an epoch.

    It names the model as on the Hub. The model comes as a folder of the Hub's cache.
    """
    data, hub = language_model / "sentences", language_model / "hub"
    said = run("trl_sft", home, tmp_path, "--data", data, "--pretrained", hub)
    # Two steps of four texts: a learner on its own would have trained on a quarter of them.
    assert re.search(r"^\[1\] .*'epoch': '?0\.5'?", said, re.MULTILINE), said
    assert (tmp_path / "out/results/model.safetensors").stat().st_size > 0


def test_trls_own_script_for_preferences(home: Path, language_model: Path, tmp_path: Path) -> None:
    """The script ``dpo`` teaches a model which of two answers is better. Its loss begins at ln 2 for any model."""
    choices = [{"prompt": f"Cat {number}", "chosen": " sleeps.", "rejected": " barks."} for number in range(8)]
    (tmp_path / "choices").mkdir()
    (tmp_path / "choices/train.jsonl").write_text("\n".join(map(json.dumps, choices)))
    said = run("trl_dpo", home, tmp_path, "--data", tmp_path / "choices", "--pretrained", language_model / "hub")
    losses = [float(found) for found in re.findall(r"{'loss': '?([\d.]+)", said)]
    assert losses[0] == pytest.approx(0.6931, abs=1e-4), said
    assert len(losses) == 2
    assert (tmp_path / "out/results/out/model.safetensors").stat().st_size > 0


def test_rl_zoos_own_program(home: Path, tmp_path: Path) -> None:
    """The program ``rl_zoo3.train`` learns to balance a pole. Its manifest names neither its files nor its metrics."""
    run("rl_zoo3", home, tmp_path)
    kept = tmp_path / "out/results/workdir/logs/ppo/CartPole-v1_1"
    assert (kept / "CartPole-v1.zip").stat().st_size > 0
    assert (kept / "CartPole-v1/config.yml").read_text()
    names = {line.partition(",")[0] for line in (tmp_path / "out/metrics.csv").read_text().splitlines()}
    assert {"rollout/ep_rew_mean", "train/loss"} <= names, "the program has written TensorBoard's files"


def test_weights_and_biases_keeps_its_offline_run(home: Path, tmp_path: Path) -> None:
    run("wandb", home, tmp_path)
    [kept] = (tmp_path / "out/results/workdir/wandb").glob("offline-run-*/run-*.wandb")
    assert kept.stat().st_size > 0


def test_a_program_may_compile_a_part_of_itself(home: Path, tmp_path: Path) -> None:
    assert "sum 7" in run("compiled", home, tmp_path)
