"""``python -m weft_trainer.packages.build``: the program of a package build.

It resolves the packages that a job asks for against what the image has, and installs those that are missing into a
folder of their own, the overlay. It runs as any job's program does, in a learner's sandbox, because building a package
runs its authors' code. It writes ``lock.json`` and ``overlay.zip`` into RESULT_DIR.

The request is the variable WEFT_PACKAGES (:class:`BuildRequest`). The interpreter is the image's own.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import tomllib

from weft_trainer.errors import TrainerError
from weft_trainer.packages.archive import write_archive
from weft_trainer.packages.explain import Source, explain, read_sources
from weft_trainer.packages.request import (
    REQUEST_VARIABLE,
    SECRET_VARIABLE,
    BuildRequest,
    Outcome,
    Pin,
    canonical_name,
    lock_digest,
)
from weft_trainer.packages.tools import find_uv, index_variables, run_environment, uv_variables
from weft_trainer.words import count, size

_FIXED = re.compile(r"torch|torchvision|torchaudio|triton|tensorflow|tensorflow-cpu|horovod|ray|jax|jaxlib|nvidia-.*")
"""Packages of the image that stay as they are: compiled against each other, or against the machine's GPUs."""
_SAME_MAJOR = ("numpy",)
"""Packages that the fixed ones were compiled against: any version of the same major number works."""
_ADDED = re.compile(r"^ [+~] (?P<name>[^=\s]+)==(?P<version>\S+)(?: \(from (?P<url>.+)\))?$")
_REMOVED = re.compile(r"^ - (?P<name>[^=\s]+)==(?P<version>\S+)")
_PROGRESS = re.compile(r"^ *(Resolved|Downloading|Building|Built|Prepared|Installed) ")


class Refused(TrainerError):
    """uv's refusal, explained."""


class PackageBuild:
    """
    Args:
        request: from the service.
        code: the folder of the job's code.
        results: RESULT_DIR.
        data: DATA_DIR, with the wheels of data stores.
        scratch: an empty folder.
    """

    def __init__(self, request: BuildRequest, code: Path, results: Path, scratch: Path, data: Path) -> None:
        self._request = request
        self._code = code
        self._results = results
        self._data = data
        self._scratch = scratch
        self._uv = find_uv(scratch / "uv")
        environment = run_environment()
        environment |= uv_variables(environment)
        if request.default_index:
            environment["UV_DEFAULT_INDEX"] = request.default_index
        if request.index:
            environment |= index_variables(request.index, os.environ.get(SECRET_VARIABLE, ""), environment)
        self._environment = environment
        wheels = self._find_wheels()
        self._wheel_folders = sorted({str(path.parent) for path in wheels})
        self._wheel_digests = {
            (canonical_name(name), version): f"sha256:{_digest(path)}"
            for path in wheels
            for name, version in [path.name.split("-")[:2]]
        }

    def run(self) -> Outcome:
        """Raises: TrainerError."""
        given = self._request.pins
        pins = self._resolve() if given is None else [Pin(**pin) for pin in given]
        if lock_digest(pins) in self._request.known:
            print("these packages have been installed before", flush=True)
            return self._write(Outcome(pins, known=True))
        if not pins:
            print("the image has all of these packages", flush=True)
            return self._write(Outcome(pins))
        overlay = self._scratch / "overlay"
        self._install(pins, overlay)
        archive = self._results / "overlay.zip"
        files, installed = write_archive(overlay, archive)
        with archive.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        taken = archive.stat().st_size
        print(f"{count(len(pins), 'package')}: {size(installed)}, {size(taken)} compressed", flush=True)
        return self._write(Outcome(pins, sha256=digest, size=taken, files=files, installed_bytes=installed))

    def _write(self, outcome: Outcome) -> Outcome:
        (self._results / "lock.json").write_text(json.dumps(outcome.as_json(), indent=1) + "\n")
        return outcome

    def _resolve(self) -> list[Pin]:
        """The packages that the image lacks. uv takes what the image has wherever that will do."""
        request = self._request
        lists = self._requirement_lists()
        arguments = [word for path in lists for word in ("--requirement", str(path))]
        sources = read_sources(request.packages, lists[1:], self._code)
        constraints = self._scratch / "constraints.txt"
        fixed = fixed_packages()
        constraints.write_text("".join(f"{line}\n" for line in fixed.values()))
        command = ["pip", "install", "--dry-run", *arguments, "--constraint", str(constraints)]
        said = self._run_uv(command, sources, fixed)
        removed = {match["name"]: match["version"] for match in map(_REMOVED.match, said) if match}
        pins = []
        for match in filter(None, map(_ADDED.match, said)):
            name = match["name"]
            source = match["url"] or self._wheel_digests.get((canonical_name(name), match["version"]), "")
            pins.append(Pin(name, match["version"], source, removed.get(name, "")))
        return self._with_hashes(sorted(pins))

    def _with_hashes(self, pins: Sequence[Pin]) -> list[Pin]:
        """The pins, each with the hashes of its files that fit: from the index, or of the job's own wheel."""
        if not pins:
            return []
        wanted, lock = self._scratch / "pins.txt", self._scratch / "pylock.toml"
        wanted.write_text("".join(f"{pin.requirement}\n" for pin in pins if not pin.source.startswith("sha256:")))
        command = ["pip", "compile", "--no-deps", "--quiet", "--format", "pylock.toml", "--generate-hashes"]
        self._run_uv([*command, "--output-file", str(lock), str(wanted)], [], {})
        found = {}
        for package in tomllib.loads(lock.read_text()).get("packages", []):
            files = [*package.get("wheels", []), *(package[kind] for kind in ("sdist", "archive") if kind in package)]
            digests = {f"sha256:{file['hashes']['sha256']}" for file in files if "sha256" in file.get("hashes", {})}
            found[canonical_name(package["name"])] = tuple(sorted(digests))
        return [
            replace(
                pin,
                hashes=[pin.source] if pin.source.startswith("sha256:") else found.get(canonical_name(pin.name), ()),
            )
            for pin in pins
        ]

    def _requirement_lists(self) -> list[Path]:
        """Files for uv: the manifest's packages, and the job's own file."""
        packages = self._scratch / "packages.txt"
        packages.write_text("".join(f"{line}\n" for line in self._request.packages))
        if self._request.requirements is None:
            return [packages]
        path = self._code / self._request.requirements
        if not path.is_file():
            raise TrainerError(f"framework.requirements: the code has no file {self._request.requirements}")
        if path.name != "uv.lock":
            return [packages, path]
        # uv's own lock is for its projects. As a list of requirements, it fits here.
        exported = self._scratch / "uv.lock.txt"
        self._run_uv(
            [
                *("export", "--frozen", "--no-hashes", "--no-dev", "--no-emit-project", "--quiet"),
                *("--project", str(path.parent), "--output-file", str(exported)),
            ],
            [],
            {},
            of_image=False,
        )
        return [packages, exported]

    def _install(self, pins: Sequence[Pin], overlay: Path) -> None:
        lock = self._scratch / "lock.txt"
        lock.write_text("".join(f"{pin.requirement}\n" for pin in pins))
        command = ["pip", "install", "--no-deps", "--target", str(overlay), "--requirement", str(lock)]
        self._run_uv([*command, "--link-mode", "copy"], [], {})
        # Overlays can be read-only. The bytecode goes without the sources' times, which an archive does not keep.
        # Nor does it keep this folder's name, so that the same packages always make the same archive.
        compiling = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-j", "0"]
        # It fails for files that are meant for another Python, which is no failure of the build.
        subprocess.run([*compiling, "-s", str(overlay), str(overlay)], capture_output=True)

    def _find_wheels(self) -> list[Path]:
        """The wheels that the job brings with its code, and from its data stores."""
        found = sorted({path for pattern in self._request.wheels for path in self._code.glob(pattern)})
        if self._request.wheels and not found:
            raise TrainerError(f"framework.wheels: the code has no file {' or '.join(self._request.wheels)}")
        for path in found:
            if path.suffix != ".whl":
                raise TrainerError(f"framework.wheels: {path.relative_to(self._code)} is no wheel (NAME-VERSION-….whl)")
        if self._request.stores:
            found += sorted(self._data.rglob("*.whl"))
        return found

    def _run_uv(
        self, command: list[str], sources: Sequence[Source], fixed: Mapping[str, str], *, of_image: bool = True
    ) -> list[str]:
        """Run uv in the code's folder, with its progress in the log. Returns its lines. Raises: Refused."""
        links = [word for folder in self._wheel_folders for word in ("--find-links", folder)]
        whole = [self._uv, *command, *(["--python", sys.executable, *links] if of_image else []), "--no-progress"]
        said: list[str] = []
        with subprocess.Popen(
            whole,
            cwd=self._code,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout
            for line in process.stdout:
                said.append(line.rstrip())
                if _PROGRESS.match(line):
                    print(line.strip(), flush=True)
        if process.returncode != 0:
            raise Refused(explain(said, sources, fixed))
        return said


def fixed_packages() -> dict[str, str]:
    """The image's packages that stay, by name, as constraints for uv."""
    found = {}
    for name, version in _installed():
        if _FIXED.fullmatch(name):
            found[name] = f"{name}=={version}"
        elif name in _SAME_MAJOR:
            major = int(version.partition(".")[0])
            found[name] = f"{name}>={major},<{major + 1}"
    return found


def _installed() -> Iterator[tuple[str, str]]:
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            yield canonical_name(name), distribution.version


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> int:
    try:
        request = BuildRequest.parse(os.environ[REQUEST_VARIABLE])
        with tempfile.TemporaryDirectory() as scratch:
            results, data = Path(os.environ["RESULT_DIR"]), Path(os.environ["DATA_DIR"])
            PackageBuild(request, Path.cwd(), results, Path(scratch), data).run()
    except TrainerError as error:
        print(f"packages: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
