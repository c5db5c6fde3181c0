"""The environments that learners run in on this machine: virtual environments, built from an image's own lock.

    python -m weft_workers.environments build IMAGE …     build ahead of the first job, with progress (`weft env build`)
    python -m weft_workers.environments python IMAGE      print its interpreter's path; built if need be

IMAGE is a reference such as `pytorch:2.13.0`, or what a manifest says: `horovod`, `tensorflow:2.21`.

The build itself is :mod:`weft_workers.supervision.build`, a process of its own.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from weft_core import bundled, processes
from weft_core.catalogue import Catalogue, CatalogueError, Image
from weft_core.engine import LaunchRefused
from weft_core.settings import load_settings
from weft_workers.supervision.installer import Screen
from weft_workers.supervision.waits import Recipe, Wait

_Seen = list[tuple[Path, int, int]]
"""Files, each with its size and its time of modification."""
_NEEDED = ("psutil",)  # what the agent imports besides the standard library
_PROGRAMS = ("py-spy", "uv")
"""Programs that the agent uses. Each is the only one of a package with its name."""
_OLDEST = (3, 11)

# Run by a custom environment's python: its version, and which of the modules it lacks.
_PROBE = """
import sys
from importlib.util import find_spec
print(*sys.version_info[:2], *(name for name in sys.argv[1:] if find_spec(name) is None))
"""


class EnvironmentFailed(Exception):
    """An environment can't be built; the message says why."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment, built or to be built."""

    image: str
    folder: Path
    recipe: Recipe | None  # None: the user's own, which is there

    @property
    def python(self) -> Path:
        plain = self.folder / "bin" / "python"
        # A Python that no venv has made, in /usr say, may have the other name only.
        return plain if self.recipe or plain.exists() else self.folder / "bin" / "python3"


class EnvironmentBuilder:
    """Knows the environment of each image.

    Args:
        root: holds environments, wheels and copies of the agent. Several installations may share one.
        catalogue: default: the shipped one.
        agent: the folder of the package ``weft_trainer``; default: the one of this installation.
        python: makes the environments.
    """

    def __init__(
        self,
        root: Path,
        *,
        catalogue: Catalogue | None = None,
        agent: Path | None = None,
        python: str = sys.executable,
    ) -> None:
        self._root = root
        self._catalogue = catalogue
        self._agent = agent
        self._python = python
        self._probed: dict[tuple[Path, int], str] = {}
        self._copied: tuple[_Seen, Path] | None = None

    @property
    def root(self) -> Path:
        """Holds all of them."""
        return self._root

    @staticmethod
    def root_of(home: Path) -> Path:
        """Where the environments of an installation are: ``$WEFT_ENVIRONMENTS_DIR``, else in the user's cache, so that
        all homes share them, else in the installation's home, as a service's user may have no cache."""
        if given := os.environ.get("WEFT_ENVIRONMENTS_DIR"):
            return Path(given).expanduser().absolute()
        caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
        try:
            shared = caches.expanduser().absolute() / "weft" / "environments"
            shared.mkdir(mode=0o700, parents=True, exist_ok=True)
        except (OSError, RuntimeError):
            return home.expanduser().absolute() / "environments"
        return shared if os.access(shared, os.W_OK) else home.expanduser().absolute() / "environments"

    def locate(self, image: str) -> Environment:
        """The environment of an image of the catalogue, ``name:version``, or of a custom one: a path.

        Raises:
            LaunchRefused: there is no such image, or no learner can run in it.
        """
        if image.startswith("/"):
            return self._custom(image)
        catalogue = self._catalogue or Catalogue.load()
        found = catalogue.get(image)
        if found is None:
            raise LaunchRefused(
                f"image {image!r}: the local engine knows {', '.join(i.reference for i in catalogue.images)}, "
                "and takes the absolute path of a virtual environment of your own",
                "S103",
            )
        recipe = self._recipe(found)
        return Environment(image, Path(recipe.folder), recipe)

    def ready(self) -> frozenset[str]:
        """References of the catalogue's images whose environments are built."""
        images = (self._catalogue or Catalogue.load()).images
        return frozenset(image.reference for image in images if self._recipe(image).is_complete())

    def build(self, image: str, progress: Callable[[str], None] = lambda text: None) -> Environment:
        """The environment, once it is built; whether this call started that or another process.

        Raises:
            LaunchRefused: there is no such image.
            EnvironmentFailed: it can't be built.
        """
        environment = self.locate(image)
        recipe = environment.recipe
        if recipe is None:
            return environment
        wait, said = Wait(recipe, f"process-{os.getpid()}", processes.identity(os.getpid())), ""
        try:
            while not (found := wait.check()).ready:
                if found.failed:
                    raise EnvironmentFailed(found.failed)
                if found.progress != said:
                    said = found.progress
                    progress(said)
                time.sleep(0.1)
        finally:
            wait.end()
        return environment

    def agent(self) -> Path:
        """A folder for PYTHONPATH that holds a copy of ``weft_trainer`` as it is now. In its ``bin`` are programs that
        need not be in each environment: what this installation has of py-spy and uv, and the translation of pip's
        settings for uv. In its ``brought`` is psutil, for environments of the users' own that lack it.

        A copy, named by its content, so that an upgrade of Weft changes nothing under a running learner.
        """
        source = self._agent or _installed_agent()
        sources = sorted(path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        seen = [(path, status.st_size, status.st_mtime_ns) for path in sources for status in [path.stat()]]
        if self._copied is None or self._copied[0] != seen or not self._copied[1].is_dir():
            self._copied = seen, self._copy_agent(source, sources)  # reading all of it takes 30 ms
        return self._copied[1]

    def _copy_agent(self, source: Path, sources: list[Path]) -> Path:
        digest = hashlib.sha256()
        for path in sources:
            digest.update(f"{path.relative_to(source)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
        settings = bundled.path("trainer_images") / "pip-settings"
        digest.update(settings.read_bytes())
        programs = [settings]
        for name in _PROGRAMS:
            path = Path(sysconfig.get_path("scripts"), name)
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                version = importlib.metadata.version(name)  # in place of 40 MB of content
                if path.is_file():
                    digest.update(f"{name} {version}\0".encode())
                    programs.append(path)
        brought = _portable("psutil")
        if brought:
            digest.update(b"".join(path.read_bytes() for path in sorted(brought.glob("*.*"))))
        target = self._root / f"runtime-{digest.hexdigest()[:16]}"
        if target.is_dir():
            return target
        self._root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".runtime-", dir=self._root) as draft:
            copy = Path(draft) / "copy"
            shutil.copytree(source, copy / "weft_trainer", ignore=shutil.ignore_patterns("__pycache__"))
            (copy / "weft_trainer" / "bin").mkdir()
            for path in programs:
                shutil.copy2(path, copy / "weft_trainer" / "bin")
            if brought:
                place = copy / "weft_trainer" / "brought" / brought.name
                shutil.copytree(brought, place, ignore=shutil.ignore_patterns("__pycache__"))
            # Learners in a sandbox can't write there, and would compile it at each start: a quarter of a second. A
            # Python of another version still does.
            compileall.compile_dir(copy, quiet=2, stripdir=copy, prependdir=target)
            try:
                copy.rename(target)
            except OSError:
                if not target.is_dir():  # else another process was first
                    raise
        return target

    def _recipe(self, image: Image) -> Recipe:
        """How it is built, in a folder named by all that it depends on."""
        parts = image.parts()
        parts.append(f"{platform.python_implementation()} {platform.python_version()} {platform.machine()}".encode())
        digest = hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:12]
        return Recipe(
            image=image.reference,
            folder=str(self._root / f"{image.name}-{image.version}-{digest}"),
            requirements=str(image.lock),
            pip=list(image.pip),
            script=str(image.build) if image.build else None,
            wheels=str(self._root / "wheels"),
            python=self._python,
            pip_settings=str(bundled.path("trainer_images") / "pip-settings"),
            imports=list(image.imports),
            variants=[str(path) for path in image.variants],
        )

    def _custom(self, image: str) -> Environment:
        environment = Environment(image, Path(image), None)
        try:
            key = (environment.python, environment.python.stat().st_mtime_ns)
        except OSError:
            raise LaunchRefused(
                f"image {image}: no virtual environment is there (there is no {environment.python})", "S103"
            ) from None
        if key not in self._probed:
            self._probed[key] = _probe(environment.python)
        if problem := self._probed[key]:
            del self._probed[key]  # the next job finds it mended
            raise LaunchRefused(f"image {image}: {problem}", "S103")
        return environment


def _installed_agent() -> Path:
    spec = importlib.util.find_spec("weft_trainer")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the package weft_trainer is missing from this installation of Weft")
    return Path(next(iter(spec.submodule_search_locations)))


def _portable(package: str) -> Path | None:
    """The folder of a package of this installation whose compiled parts serve every Python (its stable ABI)."""
    spec = importlib.util.find_spec(package)
    folder = Path(next(iter(spec.submodule_search_locations))) if spec and spec.submodule_search_locations else None
    if folder is None or any(not path.name.endswith(".abi3.so") for path in folder.glob("*.so")):
        return None
    return folder


def _probe(python: Path) -> str:
    """Why no learner can run by this interpreter; empty: one can."""
    try:
        answer = subprocess.run(
            [python, "-I", "-c", _PROBE, *(name for name in _NEEDED if _portable(name) is None)],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"its Python does not run: {error}"
    major, minor, *lacking = answer.stdout.split()
    if (int(major), int(minor)) < _OLDEST:
        return f"it has Python {major}.{minor}, learners need {_OLDEST[0]}.{_OLDEST[1]} or newer"
    if lacking:
        names = " and ".join(lacking)
        return f"its Python lacks {names}, which learners need: `{python} -m pip install {' '.join(lacking)}`"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="weft env", description="The environments that learners run in.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("build", help="build them ahead of the first job")
    command.add_argument("images", nargs="+", metavar="IMAGE", help="such as pytorch:2.13.0, or horovod")
    command = commands.add_parser("python", help="print the path of its interpreter; it is built if need be")
    command.add_argument("images", nargs=1, metavar="IMAGE")
    given = parser.parse_args()
    settings = load_settings()
    builder = EnvironmentBuilder(EnvironmentBuilder.root_of(settings.home))
    for image in given.images:
        screen = Screen()
        try:
            reference = _reference(image, settings.images.aliases)
            environment = builder.build(reference, screen.show)
        except (CatalogueError, LaunchRefused, EnvironmentFailed) as error:
            screen.close()
            print(f"{image}: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            screen.close()
            print(f"{image}: no longer waited for; the build ends, unless jobs wait for it", file=sys.stderr)
            return 130
        screen.close()
        print(environment.python if given.command == "python" else f"{reference}: {environment.folder}", flush=True)
    return 0


def _reference(image: str, aliases: Mapping[str, str]) -> str:
    """The reference of an image that is named as in a manifest, by framework and version."""
    catalogue = Catalogue.load()
    if image.startswith("/") or catalogue.get(image):
        return image
    framework, _, version = image.partition(":")
    return catalogue.resolve(framework, version or None, aliases).reference


if __name__ == "__main__":
    sys.exit(main())
