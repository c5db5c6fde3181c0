"""A package build, as the program that it is: what its lock says, and that it installs nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.wheels import make_wheel, private_index

RUNTIME = Path(__file__).parents[3] / "trainer_images" / "runtime"


class Bench:
    """A job's folders, and an environment in place of the image."""

    def __init__(self, folder: Path) -> None:
        self.code, self.results, self.data = (folder / name for name in ("code", "results", "data"))
        for place in (self.code, self.results, self.data):
            place.mkdir()
        # A machine with an index of its own would find other packages.
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
        self._environment |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PYTHONPATH": str(RUNTIME)}
        self._environment |= {"RESULT_DIR": str(self.results), "DATA_DIR": str(self.data)}

    def build(self, *, fails: bool = False, secret: str = "", **request: Any) -> str:
        """What the build prints."""
        if "index" in request:
            self._environment.pop("PIP_NO_INDEX", None)
        with tempfile.TemporaryDirectory() as cache:  # in uv's own, the file that the lock means may be
            said = self._run(request, secret, cache)
        assert (said.returncode != 0) == fails, said.stdout + said.stderr
        return said.stdout

    def _run(self, request: dict[str, Any], secret: str, cache: str) -> subprocess.CompletedProcess[str]:
        given = {"WEFT_PACKAGES": json.dumps(request), "WEFT_INDEX_SECRET": secret, "UV_CACHE_DIR": cache}
        return subprocess.run(
            [sys.executable, "-m", "weft_trainer.packages.build"],
            env=self._environment | given,
            cwd=self.code,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def lock(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.results / "lock.json").read_text())
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def digest(path: Path) -> str:
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def test_the_lock_has_the_hashes_of_the_jobs_own_wheels(bench: Bench) -> None:
    make_wheel(bench.code, "weft-alpha", "1.1")
    alpha = make_wheel(bench.code, "weft-alpha", "1.2", ["weft-beta"])
    beta = make_wheel(bench.code, "weft-beta", "2.5")
    bench.build(packages=["weft-alpha"], wheels=["*.whl"])
    assert [(pin["name"], pin["version"], pin["hashes"]) for pin in bench.lock["packages"]] == [
        ("weft-alpha", "1.2", [digest(alpha)]),
        ("weft-beta", "2.5", [digest(beta)]),
    ]


def test_the_same_lock_refuses_a_file_with_another_hash(bench: Bench) -> None:
    wheel = make_wheel(bench.code, "weft-alpha", "1.2")
    meant = wheel.read_bytes()
    bench.build(packages=["weft-alpha"], wheels=["*.whl"])
    first = bench.lock
    (bench.results / "overlay.zip").unlink()
    forged = make_wheel(bench.code, "weft-alpha", "1.2", text="STOLEN = True\n")
    said = bench.build(packages=["weft-alpha"], wheels=["*.whl"], pins=first["packages"], fails=True)
    assert "packages: " in said
    assert "Hash mismatch for `weft-alpha==1.2`" in said
    assert digest(forged) in said
    assert not (bench.results / "overlay.zip").exists()
    wheel.write_bytes(meant)
    bench.build(packages=["weft-alpha"], wheels=["*.whl"], pins=first["packages"])
    assert bench.lock["packages"] == first["packages"]


def test_a_file_of_an_index_that_names_no_hashes_is_hashed(bench: Bench, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "kept", "weft-alpha", "1.2")
    with private_index(tmp_path / "served", [wheel], "who", "word") as index:
        bench.build(packages=["weft-alpha"], index=index.url, secret="who:word")
        first = bench.lock
        assert [pin["hashes"] for pin in first["packages"]] == [[digest(wheel)]]
        forged = make_wheel(tmp_path / "served/simple/weft-alpha", "weft-alpha", "1.2", text="STOLEN = True\n")
        said = bench.build(
            packages=["weft-alpha"], index=index.url, secret="who:word", pins=first["packages"], fails=True
        )
        assert digest(forged) in said
