"""`make sbom`: each deployable's packages, in the versions of the locks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def pins(lock: Path) -> set[tuple[str, str]]:
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", lock.read_text(), re.MULTILINE)
    return {(name.lower(), version) for name, version in found}


@pytest.mark.slow
def test_the_packages_are_those_of_the_locks(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "requirements/sbom"), "--folder", str(tmp_path)]
    subprocess.run([*command, "client", "image-horovod-0.28.1-torch2.13-cpu", "dashboard"], check=True)
    found: dict[str, set[tuple[str, str]]] = {}
    for path in tmp_path.glob("*.cdx.json"):
        document = json.loads(path.read_text())
        assert document["bomFormat"] == "CycloneDX"
        found[path.name.removesuffix(".cdx.json")] = {
            ("/".join(filter(None, (part.get("group"), part["name"]))).lower(), part["version"])
            for part in document["components"]
        }
    locked = pins(ROOT / "requirements/constraints.txt")
    assert found["client"] <= locked
    assert {"httpx", "typer"} <= {name for name, _ in found["client"]}
    assert "fastapi" not in {name for name, _ in found["client"]}
    folder = ROOT / "trainer_images"
    whole = pins(folder / "horovod/requirements-torch.lock") | pins(folder / "pytorch/cpu.lock")
    assert found["image-horovod-0.28.1-torch2.13-cpu"] == whole | pins(folder / "runtime/requirements.lock") | {
        ("horovod", "0.28.1")
    }
    page = {name for name, _ in found["dashboard"]}
    assert {"react", "@tanstack/react-router"} <= page
    assert "vite" not in page, "a tool is no part of the page"


def test_a_name_that_is_not_there() -> None:
    command = [sys.executable, str(ROOT / "requirements/sbom"), "kettle"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "'kettle' is none of client, api, worker, embedded, image-pytorch-2.13.0-cpu, " in done.stderr
