"""A package build, run as a program: its lock, and that it installs nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.git_server import Repository
from tests.wheels import make_project, make_wheel, private_index

RUNTIME = Path(__file__).parents[3] / "trainer_images" / "runtime"


class Bench:
    """A job's folders, and an environment in place of the image.

    Args:
        python: the image's; default: the one that runs the tests.
    """

    def __init__(self, folder: Path, python: Path | None = None) -> None:
        self._python = python or sys.executable
        self.code, self.results, self.data = (folder / name for name in ("code", "results", "data"))
        for place in (self.code, self.results, self.data):
            place.mkdir(parents=True)
        # A machine with an index of its own would find other packages.
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
        self.environment |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PYTHONPATH": str(RUNTIME)}
        self.environment |= {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
        self.environment |= {"RESULT_DIR": str(self.results), "DATA_DIR": str(self.data)}

    def build(self, *, fails: bool = False, secret: str = "", **request: Any) -> str:
        """What the build prints."""
        if "index" in request:
            self.environment.pop("PIP_NO_INDEX", None)
        with tempfile.TemporaryDirectory() as cache:  # in uv's own, the file that the lock means may be
            said = self._run(request, secret, cache)
        assert (said.returncode != 0) == fails, said.stdout + said.stderr
        return said.stdout

    def _run(self, request: dict[str, Any], secret: str, cache: str) -> subprocess.CompletedProcess[str]:
        given = {"WEFT_PACKAGES": json.dumps(request), "WEFT_INDEX_SECRET": secret, "UV_CACHE_DIR": cache}
        return subprocess.run(
            [self._python, "-m", "weft_trainer.packages.build"],
            env=self.environment | given,
            cwd=self.code,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def lock(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.results / "lock.json").read_text())
        return found

    @property
    def pins(self) -> list[tuple[str, str, str]]:
        """Name, version and source of each package of the lock."""
        return [(pin["name"], pin["version"], pin["source"]) for pin in self.lock["packages"]]

    @property
    def installed(self) -> set[str]:
        """The modules of the overlay."""
        with zipfile.ZipFile(self.results / "overlay.zip") as archive:
            return {name.partition("/")[0] for name in archive.namelist() if name.endswith("/__init__.py")}


def image(folder: Path, *wheels: Path) -> Path:
    """The Python of an environment that has these wheels, and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (place,) = folder.glob("lib/python*/site-packages")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(place)
    return folder / "bin" / "python"


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


def test_a_package_of_a_git_repository_is_its_commit(bench: Bench, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "kept")
    make_project(repository.folder / "sub", "weft-alpha", "1.2")
    commit = repository.commit({})
    url = f"git+file://{repository.folder}"
    bench.build(packages=[f"weft-alpha @ {url}#subdirectory=sub"])
    assert bench.pins == [("weft-alpha", "1.2", f"{url}@{commit}#subdirectory=sub")]
    assert bench.installed == {"weft_alpha"}
    first = bench.lock
    make_project(repository.folder / "sub", "weft-alpha", "1.3")
    repository.commit({})
    bench.build(packages=[f"weft-alpha @ {url}#subdirectory=sub"], pins=first["packages"])
    assert bench.lock == first


def test_a_package_with_a_url_is_its_file(bench: Bench, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "kept", "weft-alpha", "1.2")
    with private_index(tmp_path / "served", [wheel], "who", "word") as index:
        url = f"{index.url}/weft-alpha/{wheel.name}"
        bench.build(packages=[f"weft-alpha @ {url}"], index=index.url, secret="who:word")
        assert bench.pins == [("weft-alpha", "1.2", url)]
        assert bench.lock["packages"][0]["hashes"] == [digest(wheel)]
        assert bench.installed == {"weft_alpha"}
        first = bench.lock["packages"]
        bench.build(packages=[f"weft-alpha @ {url}"], index=index.url, secret="who:word", pins=first)
        assert bench.lock["packages"] == first
        (bench.code / "requirements.txt").write_text(f"weft-alpha @ {url.replace('://', '://who:word@')}\n")
        said = bench.build(requirements="requirements.txt", fails=True)
        assert "weft-alpha comes from a URL with a password in it" in said
        assert "who:word" not in said


@pytest.mark.parametrize("line", ["-e ./my lib", "./my lib", "weft-alpha @ file:my%20lib"])
def test_a_folder_of_the_code_is_a_package_that_has_no_place(bench: Bench, tmp_path: Path, line: str) -> None:
    make_project(bench.code / "my lib", "weft-alpha", "1.2", ["weft-beta"])
    make_wheel(bench.code, "weft-beta", "2.5")
    (bench.code / "requirements.txt").write_text(f"{line}\n")
    asked: dict[str, Any] = {"requirements": "requirements.txt", "wheels": ["*.whl"]}
    bench.build(**asked)
    assert [pin[:2] for pin in bench.pins] == [("weft-alpha", "1.2"), ("weft-beta", "2.5")]
    assert bench.pins[0][2] == "./my lib"
    assert bench.installed == {"weft_alpha", "weft_beta"}
    assert str(tmp_path) not in (bench.results / "lock.json").read_text()
    # On another machine, and by the lock.
    elsewhere = Bench(tmp_path / "elsewhere")
    shutil.copytree(bench.code, elsewhere.code, dirs_exist_ok=True)
    elsewhere.build(**asked, pins=bench.lock["packages"])
    assert elsewhere.lock["lock_sha256"] == bench.lock["lock_sha256"]
    elsewhere.build(**asked, known=[bench.lock["lock_sha256"]])
    assert elsewhere.lock["known"]
    (elsewhere.code / "my lib/weft_alpha/__init__.py").write_text("OTHER = True\n")
    elsewhere.build(**asked)
    assert elsewhere.lock["lock_sha256"] != bench.lock["lock_sha256"], "another package of the same version"


def test_a_file_of_the_code_is_a_package(bench: Bench) -> None:
    wheel = make_wheel(bench.code / "wheels", "weft-alpha", "1.2")
    (bench.code / "requirements.txt").write_text(f"./wheels/{wheel.name}\n")
    bench.build(requirements="requirements.txt")
    assert bench.pins == [("weft-alpha", "1.2", f"./wheels/{wheel.name}")]
    first = bench.lock["packages"]
    assert first[0]["hashes"] == [digest(wheel)]
    bench.build(requirements="requirements.txt", pins=first)
    make_wheel(bench.code / "wheels", "weft-alpha", "1.2", text="STOLEN = True\n")
    assert "Hash mismatch" in bench.build(requirements="requirements.txt", pins=first, fails=True)


def test_a_path_outside_the_code_is_refused(bench: Bench, tmp_path: Path) -> None:
    make_project(tmp_path / "lib", "weft-alpha", "1.2")
    (bench.code / "requirements.txt").write_text("../lib\n")
    said = bench.build(requirements="requirements.txt", fails=True)
    assert "packages: weft-alpha @ file://" in said
    assert "is not in the folder of the code" in said


def test_an_answer_of_uvs_that_is_not_understood_is_an_error(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "job", image(tmp_path / "image"))
    other = tmp_path / "bin" / "uv"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho ' + weft-alpha, in a version to come'\n")
    other.chmod(0o755)
    bench.environment["PATH"] = f"{other.parent}:/usr/bin:/bin"
    said = bench.build(packages=["weft-alpha"], fails=True)
    assert "this answer of uv's is not understood: '+ weft-alpha, in a version to come'" in said
    assert not (bench.results / "lock.json").exists()


def test_the_requirements_of_what_stays_are_kept(tmp_path: Path) -> None:
    torch = make_wheel(tmp_path, "torch", "2.13.0+cpu", ["weft-algebra>=1.13.3"])
    algebra = make_wheel(tmp_path, "weft-algebra", "1.14")
    bench = Bench(tmp_path / "job", image(tmp_path / "image", torch, algebra))
    make_wheel(bench.code, "weft-algebra", "1.12")
    make_wheel(bench.code, "weft-algebra", "1.15")
    said = bench.build(packages=["weft-algebra==1.12"], wheels=["*.whl"], fails=True)
    assert "Asked for by framework.packages[0]: weft-algebra==1.12" in said
    assert "Of the image, torch==2.13.0+cpu stays, and needs weft-algebra>=1.13.3" in said
    bench.build(packages=["weft-algebra>1.14"], wheels=["*.whl"])
    assert [(pin["version"], pin["replaces"]) for pin in bench.lock["packages"]] == [("1.15", "1.14")]


def test_nothing_is_added_to_an_image_that_lacks_what_its_own_packages_ask_for(tmp_path: Path) -> None:
    torch = make_wheel(tmp_path, "torch", "2.13.0+cpu", ["weft-algebra"])
    ray = make_wheel(tmp_path, "ray", "2.60.0", ["weft-beta<2"])
    beta = make_wheel(tmp_path, "weft-beta", "1.0")
    bench = Bench(tmp_path / "job", image(tmp_path / "image", torch, ray, beta))
    for name, version in (("weft-algebra", "1.14"), ("weft-alpha", "1.2"), ("weft-beta", "2.5")):
        make_wheel(bench.code, name, version)
    bench.build(packages=["weft-alpha"], wheels=["*.whl"])
    assert [pin[0] for pin in bench.pins] == ["weft-alpha"]
    said = bench.build(packages=["weft-beta==2.5"], wheels=["*.whl"], fails=True)
    assert "Of the image, ray==2.60.0 stays, and needs weft-beta<2" in said, "the others' requirements still count"


def test_torchvision_is_of_the_build_of_torch(tmp_path: Path) -> None:
    torch = make_wheel(tmp_path, "torch", "2.13.0+cpu")
    bench = Bench(tmp_path / "job", image(tmp_path / "image", torch))
    make_wheel(bench.code, "torchvision", "99.1", ["torch==2.13.0"])
    make_wheel(bench.code, "weft-models", "1.0", ["torchvision"])
    said = bench.build(packages=["weft-models"], wheels=["*.whl"], fails=True)
    assert "torchvision 99.1 is compiled for another build of torch than the image's torch 2.13.0+cpu" in said
    assert "torchvision 99.1+cpu fits" in said
    assert "framework.packages[0]: weft-models" in said
    own = make_wheel(tmp_path, "torchvision", "99.1", ["torch==2.13.0+cpu"])
    (bench.code / own.name).write_bytes(own.read_bytes())
    bench.build(packages=["weft-models"], wheels=["*.whl"])
    assert [pin[:2] for pin in bench.pins] == [("torchvision", "99.1"), ("weft-models", "1.0")]
    make_wheel(bench.code, "torchvision", "99.1+cpu", ["torch==2.13.0"])
    bench.build(packages=["torchvision"], wheels=["*.whl"])
    assert [pin[:2] for pin in bench.pins] == [("torchvision", "99.1+cpu")]


def project(bench: Bench, folder: str, requires: Sequence[str], more: str = "") -> Path:
    """A project in the code, with a lock of its own that the wheels in the code were enough for."""
    place = make_project(bench.code / folder, "weft-demo", "0.1", requires, more)
    command = ["uv", "lock", "--quiet", "--no-index", "--find-links", str(bench.code), "--project", str(place)]
    subprocess.run([*command, "--python", sys.executable], env=bench.environment, check=True)
    return place


def test_a_lock_of_uvs_is_taken_without_another_build_of_what_stays(tmp_path: Path) -> None:
    torch = make_wheel(tmp_path, "torch", "2.13.0+cpu", ["weft-algebra"])
    algebra = make_wheel(tmp_path, "weft-algebra", "1.14")
    bench = Bench(tmp_path / "job", image(tmp_path / "image", torch, algebra))
    make_wheel(bench.code, "torch", "2.12.0")
    make_wheel(bench.code, "torch", "2.13.0", ["weft-algebra", "nvidia-weft", "weft-cuda"])
    for name, version in (("weft-algebra", "1.13"), ("nvidia-weft", "13.0"), ("weft-alpha", "1.2")):
        make_wheel(bench.code, name, version)
    make_wheel(bench.code, "weft-cuda", "13.0", ["nvidia-weft"])
    project(bench, ".", ["torch==2.13.0", "weft-alpha"])
    make_wheel(bench.code, "weft-alpha", "1.3")
    bench.build(requirements="uv.lock", wheels=["*.whl"])
    assert [pin[:2] for pin in bench.pins] == [("weft-alpha", "1.2")]
    project(bench, "other", ["torch==2.12.0"])
    said = bench.build(requirements="other/uv.lock", wheels=["*.whl"], fails=True)
    number = (bench.code / "other/uv.lock").read_text().splitlines().index('name = "torch"') + 1
    assert f"Asked for by other/uv.lock line {number}: torch==2.12.0" in said
    assert "Of the image, torch==2.13.0+cpu stays" in said


def test_the_paths_of_a_lock_of_uvs_are_relative_to_its_project(bench: Bench) -> None:
    make_project(bench.code / "jobs/lib", "weft-alpha", "1.2")
    make_project(bench.code / "shared/own", "weft-beta", "2.5")
    sources = "[tool.uv.sources]\nweft-alpha = {path = 'lib'}\nweft-beta = {path = '../shared/own', editable = true}\n"
    project(bench, "jobs", ["weft-alpha", "weft-beta; sys_platform != 'win32'"], sources)
    wanted = [("weft-alpha", "1.2", "./jobs/lib"), ("weft-beta", "2.5", "./shared/own")]
    for name in ("uv.lock", "pyproject.toml"):
        bench.build(requirements=f"jobs/{name}")
        assert bench.pins == wanted
        assert bench.installed == {"weft_alpha", "weft_beta"}, "the project itself is no package"


@pytest.mark.parametrize("name", ["uv.lock", "pyproject.toml"])
def test_a_project_for_another_python_is_refused(bench: Bench, name: str) -> None:
    project(bench, ".", [])
    for path in (bench.code / "pyproject.toml", bench.code / "uv.lock"):
        path.write_text(path.read_text().replace(">=3.11", ">=3.99"))
    said = bench.build(requirements=name, fails=True)
    assert "packages: pyproject.toml: requires-python is '>=3.99', and the image has Python 3." in said


def test_an_error_has_the_line_of_pyproject(bench: Bench) -> None:
    make_project(bench.code, "weft-demo", "0.1", ["weft-alpha==9"])
    make_wheel(bench.code, "weft-alpha", "1.2")
    said = bench.build(requirements="pyproject.toml", wheels=["*.whl"], fails=True)
    assert "Asked for by pyproject.toml line 5: weft-alpha==9" in said
