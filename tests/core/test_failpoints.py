"""Failpoints do nothing unless the environment arms them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from weft_core import failpoints
from weft_core.failpoints import VARIABLE, FailpointError, Rule, around, parse

_DIES = f"""
import os
os.environ["{VARIABLE}"] = "work *before=sleep(0.01);work *after=die"
from weft_core.failpoints import around
@around("work")
def work():
    print("done", flush=True)
work()
print("lives", flush=True)
"""


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failpoints, "_rules", failpoints._rules.__wrapped__)


@around("work")
def work(answer: int) -> int:
    return answer


def test_unarmed() -> None:
    assert work(3) == 3
    assert failpoints.place("work") is None


def test_names_are_noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, f"*=note({tmp_path}/names)")
    assert work(4) == 4
    before, after = (tmp_path / "names").read_text().splitlines()
    assert before.startswith(f"work {__name__}.test_names_are_noted:")
    assert before.endswith(" before")
    assert after == before.removesuffix("before") + "after"


def test_the_first_rule_that_fits_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "other *=die; work *after=raise; *=sleep(0)")
    with pytest.raises(FailpointError, match="after"):
        work(1)


def test_death() -> None:
    done = subprocess.run([sys.executable, "-c", _DIES], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-9, "done\n"), done.stderr


def test_rules() -> None:
    assert parse("") == ()
    assert parse("a b=die;*=sleep(1.5);c=note(/x=y)") == (
        Rule("a b", "die"),
        Rule("*", "sleep", "1.5"),
        Rule("c", "note", "/x=y"),
    )
    for text in ("a", "a=dies", "=die", "a=sleep()"):
        with pytest.raises(ValueError, match="expected PATTERN=die"):
            parse(text)
