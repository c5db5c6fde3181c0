"""``weft train train.py``: the manifest that is made for a script, and its code."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.api.conftest import Api, api, api_settings
from tests.cli.conftest import Weft
from tests.cli.double import Double

from weft.client import Client
from weft.errors import WeftError
from weft.exits import ExitCode
from weft.guess import guess_framework
from weft.script import as_job

__all__ = ["api", "api_settings"]  # fixtures


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with scripts and modules of their own."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("import argparse\nimport torch\n")
    (folder / "tool.py").write_text("import json\n")
    monkeypatch.chdir(folder)
    return folder


# --- the framework -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "framework", "version"),
    [
        ("import torch.nn as nn", "pytorch", None),
        ("from torch.utils.tensorboard import SummaryWriter", "pytorch", None),
        ("import lightning as L", "pytorch", None),
        ("import tensorflow as tf", "tensorflow", None),
        ("import keras, tensorflow", "tensorflow", None),
        ("from keras import layers", "keras", None),
        ("import torch\nimport horovod.torch as hvd", "horovod", None),
        ("import tensorflow as tf\nimport horovod.tensorflow as hvd", "horovod", "tensorflow"),
        ("import ray.train.torch, torch", "ray", None),
        ("def late():\n    import torch", "pytorch", None),
        ("import numpy, torchlike, mytorch.torch\nfrom . import torch", "python", None),
        ("", "python", None),
    ],
)
def test_the_imports_tell_the_framework(tmp_path: Path, text: str, framework: str, version: str | None) -> None:
    (tmp_path / "train.py").write_text(text)
    guess = guess_framework(tmp_path / "train.py", tmp_path)
    assert (guess.framework, guess.version) == (framework, version)
    assert guess.reason.startswith("train.py imports ")


def test_modules_of_the_programs_own_count_too(tmp_path: Path) -> None:
    files = {
        "src/train.py": "from lib.data import load\nimport model\n",
        "src/model.py": "import torch\n",
        "lib/__init__.py": "",
        "lib/data.py": "from .deeper import load\n",
        "lib/deeper/__init__.py": "from .. import sibling\n",
        "lib/sibling.py": "import horovod.torch\n",
        "src/unused.py": "import ray\n",
        "src/run.sh": "cd .. && exec python src/train.py --steps 3\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert guess_framework(tmp_path / "src/train.py", tmp_path).reason == "sibling.py imports horovod"
    assert guess_framework(tmp_path / "src/run.sh", tmp_path).framework == "horovod"
    assert guess_framework(tmp_path / "src/train.py", tmp_path / "src").framework == "pytorch", "lib is not in the code"
    (tmp_path / "src/ray.py").write_text("a module of this name is the program's own")
    assert guess_framework(tmp_path / "src/unused.py", tmp_path).framework == "python"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import torch\nimport keras", r"train.py imports torch, and train.py imports keras; .* pytorch or keras"),
        ("x = (", r"train.py:1: '\(' was never closed"),
        ("x = 1\0", "train.py"),
    ],
)
def test_an_unclear_framework_is_asked_for(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "train.py").write_text(text)
    with pytest.raises(WeftError, match=said):
        guess_framework(tmp_path / "train.py", tmp_path)
    assert as_job(tmp_path / "train.py", framework="pytorch").manifest["framework"]["name"] == "pytorch"


# --- the manifest and the code ---------------------------------------------------------------------------------------


def test_the_manifest_of_a_script(project: Path) -> None:
    keys: dict[str, Any] = {"learners": 2, "gpus": None, "cpus": 2.0}
    made = as_job(project / "train.py", None, ["--lr", "0.1", "it's $1"], packages=["timm", "rich>=13"], keys=keys)
    assert made.manifest == {
        "name": "train",
        "learners": 2,
        "cpus": 2,
        "framework": {
            "name": "pytorch",
            "packages": ["timm", "rich>=13"],
            "command": """python train.py --lr 0.1 'it'"'"'s $1'""",
        },
    }
    assert made.code == project
    assert yaml.safe_load(made.text) == made.manifest
    (project / "sub dir").mkdir()
    (project / "sub dir" / "go.sh").touch()
    inner = as_job(project / "sub dir" / "go.sh", project, keys={"name": "other"})
    assert (inner.code, inner.manifest["name"]) == (project, "other")
    assert inner.manifest["framework"] == {"name": "python", "command": "bash 'sub dir/go.sh'"}


def test_a_folder_that_is_more_than_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home" / "ada"
    packages = home / "lib" / "site-packages"
    temporary = tmp_path / "tmp"
    for folder in (packages, temporary, home / "project"):
        folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    for folder, what in (
        (home, "your home folder"),
        (home.parent, "a folder above your home folder"),
        (temporary, "the folder for temporary files"),
        (packages, "a folder of the system"),
    ):
        (folder / "train.py").touch()
        with pytest.raises(WeftError, match=f"{folder} is {what}, .* move train.py into a folder of its own"):
            as_job(folder / "train.py")
    (home / "project" / "train.py").touch()
    as_job(home / "project" / "train.py")
    with pytest.raises(WeftError, match="your home folder"):
        as_job(home / "project" / "train.py", home)


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def real(api: Api, weft: Weft, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """``weft`` is signed in at the real API; its client."""
    person = api.person()
    monkeypatch.setenv("WEFT_URL", api.url)
    monkeypatch.setenv("WEFT_TOKEN", person.token)
    with Client(api.url, person.token) as client:
        yield client


def test_a_script_becomes_a_job(real: Client, weft: Weft, project: Path, tmp_path: Path) -> None:
    (project / ".weftignore").write_text("tool.py\n")
    (project / "manifest.yml").write_text("name: other\n")
    options = ["--learners", "2", "--cpus", "0.5", "--memory", "1Gb", "--name", "fit", "--set", "labels.team=vision"]
    done = weft("train", "train.py", *options, "--", "--lr", "0.1", "--save", "--", "*.csv")
    assert done.code == 0, done.err
    assert "framework: pytorch, because train.py imports torch" in done.err
    assert "manifest.yml has no effect; `weft train manifest.yml` uses it" in done.err
    job = real.job("@last")
    assert job.id in done.out
    assert (job.name, job.learners, job.labels) == ("fit", 2, {"team": "vision"})
    assert job.resources["cpus"] == 0.5
    assert job.framework.name == "pytorch"
    assert job.framework.command == "python train.py --lr 0.1 --save -- '*.csv'"
    with zipfile.ZipFile(job.download_definition(tmp_path / "code.zip")) as archive:
        assert archive.namelist() == [".weftignore", "train.py"]
    assert weft("train", "train.py", "--framework", "python", "--gpus", "0", ".").code == 0
    again = real.job("@last")
    assert (again.framework.name, again.code_sha256) == ("python", job.code_sha256)


def test_with_adds_packages_to_those_of_a_manifest(real: Client, weft: Weft, project: Path) -> None:
    for packages, expected in (("", ["timm"]), ("packages: [rich], ", ["rich", "timm"])):
        Path("manifest.yml").write_text(
            f"name: job\nframework: {{name: pytorch, {packages}command: python train.py}}\n"
        )
        assert weft("train", "manifest.yml", "--with", "timm").code == 0
        job = real.job("@last")
        assert job.manifest["framework"]["packages"] == expected
        assert job.raw["packages"]["state"] == "BUILDING"


def test_a_saved_manifest_is_the_same_job(real: Client, weft: Weft, project: Path) -> None:
    script = ["train.py", "--learners", "2"]
    done = weft("train", "--save", *script, "--", "--lr", "0.1")
    assert (done.code, done.out) == (0, "")
    assert done.err.endswith("✓ manifest.yml\n\nTrain it:  weft train manifest.yml --follow\n")
    assert not list(real.jobs.list())
    assert weft("train", "manifest.yml").code == 0
    assert weft("train", *script, "--", "--lr", "0.1").code == 0
    by_script, by_manifest = real.jobs.list()
    assert by_script.framework == by_manifest.framework
    assert by_script.code_sha256 == by_manifest.code_sha256
    assert (by_manifest.name, by_manifest.learners) == ("train", 2)
    done = weft("train", "train.py", "--save")
    assert done.code == 1
    assert "manifest.yml is there already; nothing was written. --save=FILE names another file" in done.err
    assert "lr" in (project / "manifest.yml").read_text()
    done = weft("train", "train.py", "--save=../own.yml", "--with", "timm", "--with", "rich>=13")
    assert "weft train ../own.yml . --follow" in done.err
    assert yaml.safe_load(Path("../own.yml").read_text())["framework"]["packages"] == ["timm", "rich>=13"]


def test_a_fault_is_shown_in_the_manifest_that_was_made(real: Client, weft: Weft, project: Path) -> None:
    done = weft("train", "train.py", "--framework", "pytroch")
    assert done.code == ExitCode.INVALID
    assert "the manifest of train.py:3 framework.name: expected one of: tensorflow, keras, pytorch" in done.err
    assert "name: pytroch" in done.err


def test_the_sizes_change_a_manifest_too(server: Double, weft: Weft, project: Path) -> None:
    (project / "manifest.yml").write_text("name: a\n")
    sizes = ["--learners", "3", "--gpus", "0", "--cpus", "2", "--memory", "4Gb"]
    assert weft("train", "manifest.yml", "--no-code", *sizes).code == 0
    (sent,) = server.requests("POST", "jobs")
    assert sent.json["set"] == {"learners": "3", "gpus": "0", "cpus": "2", "memory": "4Gb"}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["train.py", "--lr", "0.1"], 2, "No such option: --lr. The arguments of a script follow `--`"),
        (["train.py", ".", "0.1"], 2, "'0.1' is too much. The arguments of a script follow `--`"),
        (["manifest.yml", "--folow"], 2, "No such option: --folow"),
        (["missing.py"], 1, "there is no script missing.py"),
        (["train.py", "missing"], 1, "there is no folder missing"),
        (["train.py", "elsewhere"], 1, "the script train.py is not in the folder of the code, elsewhere"),
        (["train.py", "--no-code"], 2, "a script is code"),
        (["train.py", "--save", "--follow"], 2, "it submits nothing"),
        (["train.py", "--set", "learners", "--", "x"], 2, "KEY=VALUE"),
        (["manifest.yml", "--save"], 2, "manifest.yml is a manifest"),
        (["manifest.yml", "--framework", "ray"], 2, "manifest.yml is not a script, *.py or *.sh"),
        (["single.yml", "--with", "timm"], 2, "framework.packages of single.yml is no list: write [rich]"),
        (["manifest.yml", "--", "--lr", "1"], 2, "manifest.yml is not a script, *.py or *.sh"),
    ],
)
@pytest.mark.parametrize("command", ["train", "run"])
def test_wrong_calls_are_explained(
    server: Double, weft: Weft, project: Path, command: str, arguments: list[str], code: int, said: str
) -> None:
    if command == "run" and "--save" in arguments:
        said, code = "No such option: --save", 2
    (project / "manifest.yml").write_text("name: a\n")
    (project / "single.yml").write_text("name: a\nframework: {packages: rich}\n")
    (project / "elsewhere").mkdir()
    done = weft(command, *arguments)
    text = " ".join(done.err.replace("│", " ").split())
    assert (done.code, done.out) == (code, ""), text
    assert said in text
    assert not server.requests("POST", "jobs")


def test_the_help_shows_where_the_arguments_stand(weft: Weft) -> None:
    for command in ("train", "run"):
        assert " [-- ARGUMENT...]\n" in weft(command, "--help").out.replace(" \n", "\n").replace("  ", "")
