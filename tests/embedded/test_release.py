"""The wheel and the sdist of `make build`, as a user installs them: into an empty environment, with nothing of the
checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.e2e.stack import ENVIRONMENTS

from weft_core import __version__
from weft_workers.supervision.installer import Installer

REPOSITORY = Path(__file__).parents[2]
SERVER = {"alembic", "boto3", "celery", "fastapi", "kubernetes", "psycopg", "sqlalchemy", "uvicorn"}
_SITE = Path(f"lib/python3.{sys.version_info.minor}/site-packages")
PAGE = "api/weft_api/dashboard/static/index.html"


class Fresh:
    """An environment that had nothing in it before."""

    def __init__(self, folder: Path, wheel: Path, extra: str = "") -> None:
        self.folder = folder
        self._installer = Installer.find()
        self._run([*self._installer.make(sys.executable, str(folder / "env"))])
        python = str(folder / "env/bin/python")
        limits = ["-c", str(REPOSITORY / "requirements/constraints.txt")]
        self._run(self._installer.install(python, ["--quiet", *limits, f"{wheel}{extra}"]))
        self._take_bytecode()

    def _take_bytecode(self) -> None:
        """Copy what is compiled already, as it takes long and is not what is tested. Python takes the bytecode of those
        files that uv has linked into both environments, and compiles the others."""
        ours, fresh = (Path(prefix) / _SITE for prefix in (sys.prefix, self.folder / "env"))
        for folder in ours.rglob("__pycache__"):
            target = fresh / folder.relative_to(ours)
            if target.parent.is_dir():
                shutil.copytree(folder, target, dirs_exist_ok=True)

    def _run(self, command: list[str]) -> None:
        subprocess.run(command, env={**os.environ, **dict(self._installer.variables)}, check=True, capture_output=True)

    def weft(self, *arguments: str | Path) -> str:
        """What `weft` prints. Raises AssertionError when it fails."""
        done = subprocess.run(
            [str(self.folder / "env/bin/weft"), *map(str, arguments)],
            env={
                **os.environ,
                "PATH": f"{self.folder}/env/bin:/usr/bin:/bin",
                "WEFT_PROFILE_FILE": str(self.folder / "profile.toml"),
                "WEFT_ENVIRONMENTS_DIR": ENVIRONMENTS,
            },
            cwd=self.folder,  # not the checkout
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def packages(self) -> set[str]:
        return {path.name.split("-")[0].lower() for path in (self.folder / "env" / _SITE).glob("*.dist-info")}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist and the wheel that uv made from it."""
    folder = tmp_path_factory.mktemp("dist")
    uv = Installer.find().uv
    assert uv
    environment = {**os.environ, **dict(Installer.find().variables)}
    subprocess.run([uv, "build", "--quiet", "--out-dir", folder, REPOSITORY], env=environment, check=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    [found] = built.glob("*.whl")
    return found


def test_the_wheel_from_the_sdist_has_the_page_and_no_more_than_the_packages(built: Path, wheel: Path) -> None:
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {PAGE, "LICENSE", "Makefile", "tests/embedded/test_release.py"} <= inside
    assert not [name for name in inside if name.startswith((".venv", "dashboard/node_modules", ".git/"))]
    with zipfile.ZipFile(wheel) as archive:
        files = archive.namelist()
    assert f"weft-{__version__}" in wheel.name
    assert PAGE.removeprefix("api/") in files
    assert {name.partition("/")[0] for name in files} == {
        *("weft", "weft_api", "weft_core", "weft_data", "weft_embedded", "weft_trainer", "weft_workers"),
        f"weft-{__version__}.dist-info",
    }


def test_the_bare_wheel_is_the_thin_client(wheel: Path, tmp_path: Path) -> None:
    fresh = Fresh(tmp_path, wheel)
    assert __version__ in fresh.weft("version")
    assert "submit" in fresh.weft("--help").lower()
    assert fresh.packages() & SERVER == set()


def test_weft_up_from_the_wheel_serves_the_page_and_runs_a_job(wheel: Path, tmp_path: Path) -> None:
    fresh = Fresh(tmp_path, wheel, "[embedded]")
    home = tmp_path / "home"
    try:
        fresh.weft("up", "--detach", "--home", home, "--port", "0")
        url = re.findall(r'^url = "(.*)"', (tmp_path / "profile.toml").read_text(), re.MULTILINE)[0]
        page = httpx.get(url, timeout=300, follow_redirects=True)
        [script] = re.findall(r'<script type="module"[^>]* src="([^"]+)"', page.text)
        assert httpx.get(httpx.URL(url).join(script), timeout=300).status_code == 200
        manifest = tmp_path / "manifest.yml"
        command = "echo trained > $RESULT_DIR/model.txt"
        manifest.write_text(json.dumps({"name": "first", "framework": {"name": "python", "command": command}}))
        fresh.weft("train", manifest, "--no-code", "--follow")
        jobs: list[dict[str, Any]] = json.loads(fresh.weft("list", "--json"))
        assert [job["state"] for job in jobs] == ["COMPLETED"]
    finally:
        fresh.weft("down", "--home", home)


def test_the_constraints_fit_the_oldest_python(tmp_path: Path) -> None:
    """Those of Weft and of its tools: `make setup` is a newcomer's first command, and Debian 12 has Python 3.11.2."""
    uv = Path(sys.executable).with_name("uv")
    wanted = ["pyproject.toml", "--all-extras", "--constraints", "requirements/constraints.txt"]
    oldest = ["--python-version", "3.11.0", "--quiet", "--output-file", str(tmp_path / "resolved.txt")]
    done = subprocess.run(
        [str(uv), "pip", "compile", *wanted, *oldest], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
