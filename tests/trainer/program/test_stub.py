"""A module with ``@weft.job`` can be imported in a learner, with the package ``weft`` or without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from weft_trainer.config import RUNTIME, STUB


def run(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that has only these folders and the agent's; -S hides the package ``weft`` of this environment."""
    return subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": os.pathsep.join(map(str, (*path, RUNTIME, STUB)))},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_the_package_a_function_stays_a_function() -> None:
    done = run(
        "import weft\nfrom weft import Client, WeftError\n"
        "@weft.job\ndef one(a): return a\n"
        "@weft.job(learners=2, gpus=1)\ndef two(a): return a\n"
        "print(one(1), two(a=2), hasattr(weft, '__path__'))\n"
        "print(weft.__file__)"
    )
    assert done.stdout.splitlines() == ["1 2 False", str(STUB / "weft.py")], done.stderr


def test_without_the_package_a_learner_submits_nothing() -> None:
    for call, name in (
        ("weft.job(train).remote(1)", "train.remote"),
        ("weft.Client().jobs", "weft.Client"),
        ("weft.errors.WeftError('x')", "weft.errors.WeftError"),
    ):
        done = run(f"import weft\ndef train(): ...\n{call}")
        assert done.returncode == 1
        assert (
            f"RuntimeError: {name} is not available in a learner, which does not have the package weft" in done.stderr
        )


def test_a_real_package_is_used_wherever_it_is(tmp_path: Path) -> None:
    (tmp_path / "weft").mkdir()
    (tmp_path / "weft" / "__init__.py").write_text("real = True\n")
    (tmp_path / "weft" / "errors.py").write_text("import weft\nassert weft.real\n")
    program = "import weft, weft.errors; from weft import real; print(real, weft.__file__)"
    expected = f"True {tmp_path / 'weft' / '__init__.py'}\n"
    assert run(program, tmp_path).stdout == expected
    done = run(f"import sys; sys.path.append({str(tmp_path)!r}); {program}")
    assert done.stdout == expected, done.stderr
