"""torchvision in the PyTorch images: taken where the index has a build that fits, and nowhere else."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.wheels import make_wheel, pip_environment

BUILD = Path(__file__).parents[2] / "trainer_images" / "pytorch" / "build"
VERSION = next(line.split('"')[1] for line in BUILD.read_text().splitlines() if line.startswith("TORCHVISION = "))
OPS = "class ops:\n    nms = None\n"


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of an environment with pip, which knows no index but a folder of wheels."""
    return pip_environment(tmp_path / "environment")


def build(python: Path, wheels: Path, torch: str, *, trusted: bool = True, **settings: str) -> str:
    """What the program says in an environment with this build of PyTorch, and these settings of pip.

    Args:
        trusted: whether its locks have the hashes of the wheels.
    """
    wheel = make_wheel(wheels, "torch", torch)
    program = wheels.parent / "build"
    shutil.copy(BUILD, program)
    made = {path.name.split("-")[1]: path for path in wheels.glob("torchvision-*.whl")}
    for name, pin in (("cpu", f"=={VERSION}+cpu"), ("cuda", f"==={VERSION}")):
        content = made[pin.lstrip("=")].read_bytes() if trusted and pin.lstrip("=") in made else b""
        lock = f"torchvision{pin} --hash=sha256:{hashlib.sha256(content).hexdigest()}\n"
        program.with_name(f"torchvision-{name}.lock").write_text(lock)
    # The machine's own configuration of pip may name more wheels, or constraints.
    own = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    env = {**os.environ, **own, **settings}
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], env=env, check=True)
    done = subprocess.run([program, python, wheels], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def has_torchvision(python: Path) -> bool:
    return subprocess.run([python, "-c", "import torchvision"], capture_output=True).returncode == 0


def test_a_build_that_fits_is_taken(python: Path, tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels", "torchvision", f"{VERSION}+cpu", text=OPS)
    build(python, tmp_path / "wheels", "2.13.0+cpu")
    assert has_torchvision(python)


def test_a_build_that_no_lock_vouches_for_is_left_out(python: Path, tmp_path: Path) -> None:
    for version, torch in ((f"{VERSION}+cpu", "2.13.0+cpu"), (f"{VERSION}+cu126", "2.13.0+cu126")):
        make_wheel(tmp_path / "wheels", "torchvision", version, text=OPS)
        assert "left out" in build(python, tmp_path / "wheels", torch, trusted=False)
        assert not has_torchvision(python)


def test_the_locks_are_of_the_programs_version() -> None:
    for name, pin in (("cpu", f"torchvision=={VERSION}+cpu"), ("cuda", f"torchvision==={VERSION}")):
        assert f"\n{pin} \\\n" in BUILD.with_name(f"torchvision-{name}.lock").read_text()


def test_a_build_for_another_pytorch_is_left_out(python: Path, tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels", "torchvision", VERSION, text=OPS)
    assert "pip finds no torchvision for torch 2.13.0+cpu" in build(python, tmp_path / "wheels", "2.13.0+cpu")
    assert not has_torchvision(python)


def test_a_machine_whose_constraints_leave_no_build_goes_without(python: Path, tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels", "torchvision", VERSION, text=OPS)
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("torchvision<0.1\n")
    said = build(python, tmp_path / "wheels", "2.13.0+cpu", PIP_CONSTRAINT=str(constraints))
    assert "pip finds no torchvision for torch 2.13.0+cpu" in said
    assert not has_torchvision(python)


def test_a_build_that_fails_at_its_import_is_removed(python: Path, tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels", "torchvision", VERSION, text="raise RuntimeError('operator does not exist')\n")
    assert "does not work with torch 2.13.0" in build(python, tmp_path / "wheels", "2.13.0")
    assert not has_torchvision(python)
