"""``weft drill`` on a real stack: a program that saves everything survives, and one that forgets something is named.

The program ends none of its attempts by itself before it is disturbed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.e2e.stack import PROGRAMS, Stack, manifest

import weft
from weft.drill.report import as_json, as_markdown
from weft.drill.run import Drill, Result


def drill(stack: Stack, hold: Path, bug: str, kills: int) -> Result:
    wanted = manifest(
        f"exec python forgetful.py '{bug}' 40 0.05 {kills}",
        cpus=0.2,
        env={"HOLD": str(hold)},
        checkpoint={"every": "1s"},
    )

    def submit(values: Mapping[str, str]) -> weft.Job:
        return stack.client.train(wanted, PROGRAMS, overrides=values)

    def say(text: str) -> None:
        if found := re.fullmatch(r"undisturbed.*: (job-\w+)", text):
            (hold / found[1]).touch()

    return Drill(submit, say, kills=kills).run()


def test_a_program_survives_or_what_it_forgets_is_named(stack: Stack, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        good, bad = pool.map(lambda of: drill(stack, tmp_path, *of), [("", 3), ("optimizer", 1)])
    found = as_json(good)
    assert found["verdict"] == "survives", found
    assert [done["kind"] for done in found["disturbances"]] == ["kill", "kill in a save", "halt"]
    assert {metric["name"] for metric in found["metrics"]} == {"train/loss", "train/rate", "data/batch"}
    assert [(file["path"], file["compared"], file["differing"]) for file in found["files"]] == [
        ("model-0.npz", True, ())
    ]
    assert good.second is None
    found = as_json(bad)
    assert (found["verdict"], found["deterministic"]) == ("differs", True)
    assert found["causes"][0]["cause"] == "optimizer", found
    assert "The state of the optimizer is not saved" in as_markdown(bad)
