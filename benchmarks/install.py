"""Installation with empty caches: environments and `make demo`, beside uv alone for the same packages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.table import show
from weft_core.catalogue import Catalogue, Image
from weft_workers.supervision.installer import Installer

REPOSITORY = Path(__file__).parents[1]
GOALS = {"python:3.11": "< 5 s", "pytorch:2.13.0": "< 60 s"}
_DEMO_GOAL = "≤ 1.5"
_COMPILED = re.compile(r"is compiled and installed \((\d+) s\)")


def measure(folder: Path) -> None:
    images = [image for reference in GOALS if (image := Catalogue.load().get(reference))]
    rows = []
    for image in images:
        alone = _uv_alone(folder / f"alone-{image.name}", [_lock(image)])
        first = _build(folder / f"weft-{image.name}", image)
        again = _build(folder / f"weft-{image.name}", image, name="again")
        times = [f"{alone:.1f}", f"{first:.1f}", f"{first / alone:.2f}", f"{again:.1f}"]
        rows.append([image.reference, *times, GOALS[image.reference]])
    show(
        "Environments: seconds until one is ready",
        ["image", "uv alone", "Weft, empty cache", "ratio", "Weft, uv's cache full", "goal"],
        rows,
    )
    horovod = Catalogue.load().get("horovod:0.28.1-torch2.13")
    assert horovod
    own = ["--require-hashes", "-r", "requirements/constraints.txt"]
    clone = folder / "clone"
    subprocess.run(["git", "clone", "--quiet", REPOSITORY, clone], check=True)
    alone = _uv_alone(folder / "alone-demo", [own, _lock(horovod)], where=clone)
    demo = _demo(folder / "demo", clone)
    rest = demo.whole - demo.compiling
    show(
        "A cold `make demo`: seconds",
        ["what", "seconds", "ratio", "goal"],
        [
            ["uv alone: the same packages", f"{alone:.1f}", "", ""],
            [
                "`make demo` until both environments are there",
                f"{demo.installing:.1f}",
                f"{demo.installing / alone:.2f}",
                "",
            ],
            ["`make demo` without Horovod's compilation", f"{rest:.1f}", f"{rest / alone:.2f}", _DEMO_GOAL],
            ["`make demo`, all of it", f"{demo.whole:.1f}", "", ""],
        ],
    )


def _lock(image: Image) -> list[str]:
    return [
        "--require-hashes",
        *image.pip,
        "-r",
        str(image.lock),
        *(w for v in image.variants[:1] for w in ("-r", str(v))),
    ]


def _uv_alone(folder: Path, sets: Sequence[Sequence[str]], where: Path = REPOSITORY) -> float:
    """Seconds that uv takes for an environment of each set of arguments, from an empty cache."""
    installer = Installer.find()
    assert installer.uv, "this benchmark needs uv"
    environment = {**_cold(folder), **dict(installer.variables)}
    begun = time.monotonic()
    for number, arguments in enumerate(sets):
        python = str(folder / str(number) / "bin" / "python")
        for command in (
            installer.make(sys.executable, str(folder / str(number))),
            installer.install(python, ["--quiet", *arguments]),
        ):
            subprocess.run(command, env=environment, cwd=where, check=True, capture_output=True)
    return time.monotonic() - begun


def _build(folder: Path, image: Image, name: str = "environments") -> float:
    """Seconds until Weft has an image's environment."""
    environment = {**_cold(folder), "WEFT_ENVIRONMENTS_DIR": str(folder / name)}
    begun = time.monotonic()
    command = [sys.executable, "-m", "weft_workers.environments", "build", image.reference]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return time.monotonic() - begun


class _Demo(NamedTuple):
    """Seconds of a `make demo`."""

    whole: float
    compiling: float
    """Of Horovod, beside which the page is built."""
    installing: float
    """From the start until .venv and the job's environment are complete, without the compilation."""


def _demo(folder: Path, clone: Path) -> _Demo:
    """Run `make demo` in a clone, with empty caches."""
    environment = {
        name: value for name, value in _cold(folder).items() if not name.startswith(("WEFT_", "VIRTUAL_ENV"))
    }
    begun = time.time()
    subprocess.run(["make", "demo"], cwd=clone, env=environment, check=True, stdout=subprocess.DEVNULL)
    whole = time.time() - begun
    environments = folder / "cache" / "weft" / "environments"
    compiling = sum(
        int(found[1]) for log in environments.glob("horovod-*.log") if (found := _COMPILED.search(log.read_text()))
    )
    [complete] = environments.glob("horovod-*/.complete")
    return _Demo(whole, compiling, complete.stat().st_mtime - begun - compiling)


def _cold(folder: Path) -> Mapping[str, str]:
    """An environment whose caches are all below ``folder``."""
    caches = {"XDG_CACHE_HOME": "cache", "UV_CACHE_DIR": "uv", "PIP_CACHE_DIR": "pip", "npm_config_cache": "npm"}
    return {**os.environ, **{name: str(folder / where) for name, where in caches.items()}}
