"""``python -m weft_trainer.packages.build``: the program of a package build.

It resolves the packages that a job asks for against what the image has, and installs those that are missing into a
folder of their own, the overlay. It runs as any job's program does, in a learner's sandbox, because building a package
runs its authors' code. It writes ``lock.json`` and ``overlay.zip`` into RESULT_DIR.

The request is the variable WEFT_PACKAGES (:class:`BuildRequest`). The interpreter is the image's own.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import tomllib

from weft_trainer.errors import TrainerError
from weft_trainer.packages.archive import write_archive
from weft_trainer.packages.explain import Source, explain
from weft_trainer.packages.fixed import fixed_packages, installed_packages, other_build
from weft_trainer.packages.lists import requirement_lists
from weft_trainer.packages.local import LocalPackages, digest, is_local, may_differ, reproducible
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
from weft_trainer.packages.uv import Uv, UvFailed
from weft_trainer.words import count, size

_ADDS = re.compile(r"^ [+~] ")
_ADDED = re.compile(r"^ [+~] (?P<name>[\w.-]+)(?:==(?P<version>\S+)(?: \(from (?P<url>.+)\))?| @ (?P<at>\S+))$")


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
        self._scratch = scratch
        environment = reproducible(run_environment())
        environment |= uv_variables(environment)
        if request.default_index:
            environment["UV_DEFAULT_INDEX"] = request.default_index
        if request.index:
            environment |= index_variables(request.index, os.environ.get(SECRET_VARIABLE, ""), environment)
        self._uv = Uv(find_uv(scratch / "uv"), environment, code)
        self._local = LocalPackages(request, code, data, scratch / "wheels", self._uv)
        self._fixed = fixed_packages()

    def run(self) -> Outcome:
        """Raises: TrainerError."""
        try:
            return self._run()
        except UvFailed as refused:
            raise TrainerError(explain(refused.said, [], {})) from None

    def _run(self) -> Outcome:
        given = self._request.pins
        pins = self._resolve() if given is None else self._build_again([Pin(**pin) for pin in given])
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
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        taken = archive.stat().st_size
        print(f"{count(len(pins), 'package')}: {size(installed)}, {size(taken)} compressed", flush=True)
        return self._write(Outcome(pins, sha256=sha256, size=taken, files=files, installed_bytes=installed))

    def _write(self, outcome: Outcome) -> Outcome:
        (self._results / "lock.json").write_text(json.dumps(outcome.as_json(), indent=1) + "\n")
        return outcome

    def _resolve(self) -> list[Pin]:
        """The packages that the image lacks. uv takes the image's packages wherever they will do."""
        lists = requirement_lists(self._request, self._code, self._scratch, self._uv, self._fixed)
        installed = installed_packages()
        try:
            said = self._dry_run(*lists.files)
            if any(_name(line) in installed for line in filter(_ADDS.match, said)):
                said = self._dry_run(*lists.files, self._what_stays())
        except UvFailed as refused:
            raise TrainerError(explain(refused.said, lists.sources, self._fixed)) from None
        pins = []
        for line in filter(_ADDS.match, said):
            pin = self._read(line)
            pins.append(replace(pin, replaces=installed.get(canonical_name(pin.name), "")))
        pins = self._with_hashes(sorted(pins))
        self._check_builds(pins, lists.sources)
        return pins

    def _dry_run(self, *lists: Path) -> list[str]:
        """The packages that uv would install for these lists, with the packages that stay as they are."""
        constraints = self._list("constraints.txt", self._fixed.values())
        words = [word for path in lists for word in ("--requirement", str(path))]
        return self._uv.run("pip", "install", "--dry-run", *words, "--constraint", str(constraints))

    def _what_stays(self) -> Path:
        """The packages that stay, as requirements: so the packages that they need in turn stay as they need them.

        They are only added where a package of the image is to be replaced: uv looks up all that they need, and a job
        that adds to the image needs no index that has those. An image may have been made without something that its
        packages ask for. Nothing of that is added here.
        """
        fixed = list(self._fixed.values())
        if self._lacks(fixed):
            fixed = [requirement for requirement in fixed if not self._lacks([requirement])]
        return self._list("fixed.txt", fixed)

    def _lacks(self, requirements: Sequence[str]) -> bool:
        """Whether the image alone does not meet these requirements."""
        if not requirements:
            return False
        try:
            return any(map(_ADDS.match, self._dry_run(self._list("asked.txt", requirements))))
        except UvFailed as refused:
            if not any("No solution found" in line for line in refused.said):
                raise
            return True

    def _read(self, line: str) -> Pin:
        """A package that uv would install."""
        match = _ADDED.match(line)
        if match is None:
            raise TrainerError(f"this answer of uv's is not understood: {line.strip()!r}")
        name, version, url = match["name"], match["version"] or "", match["url"] or match["at"] or ""
        if url.startswith("file:"):
            source = self._local.source_of(url, name)
            version, wheel = self._local.bring(source)
            return Pin(name, version, source, hashes=[digest(wheel)])
        if urlsplit(url).password or "****" in url:
            raise TrainerError(
                f"{name} comes from a URL with a password in it, which would be in the job's lock: {url}"
            )
        own = None if url else self._local.find(name, version)
        return Pin(name, version, digest(own) if own else url)

    def _with_hashes(self, pins: Sequence[Pin]) -> list[Pin]:
        """The pins, each with the hashes of its files that fit: from the index, or of the job's own wheel. Those that
        come from a URL get their version, too."""
        asked = [pin for pin in pins if not pin.hashes and not pin.source.startswith("sha256:")]
        lock = self._scratch / "pylock.toml"
        found: dict[str, tuple[str, list[str]]] = {}
        if asked:
            wanted = self._list("pins.txt", (pin.requirement for pin in asked))
            command = ["pip", "compile", "--no-deps", "--quiet", "--format", "pylock.toml", "--generate-hashes"]
            self._uv.run(*command, "--output-file", str(lock), str(wanted))
            for package in tomllib.loads(lock.read_text()).get("packages", []):
                files = [*package.get("wheels", []), *(package[key] for key in ("sdist", "archive") if key in package)]
                digests = {f"sha256:{file['hashes']['sha256']}" for file in files if "sha256" in file.get("hashes", {})}
                found[canonical_name(package["name"])] = package.get("version", ""), sorted(digests)
        complete = []
        for pin in pins:
            version, hashes = found.get(canonical_name(pin.name), (pin.version, pin.hashes))
            if pin.source.startswith("sha256:"):
                hashes = [pin.source]
            complete.append(replace(pin, version=pin.version or version, hashes=hashes))
        return complete

    def _check_builds(self, pins: Sequence[Pin], sources: Sequence[Source]) -> None:
        """Refuse packages that are compiled for another build of a package that stays."""
        for pin in pins:
            why = other_build(pin, self._fixed, self._local.find(pin.name, pin.version))
            if why:
                asked = [source for source in sources if source.name == canonical_name(pin.name)] or sources
                raise TrainerError(f"{why}. Asked for by {'; '.join(f'{s.place}: {s.text}' for s in asked[:6])}")

    def _build_again(self, pins: Sequence[Pin]) -> list[Pin]:
        """An earlier lock, with the wheels of the code that it means. The code is the same, but perhaps not each byte
        of what a compiler makes of it."""
        found = []
        for pin in pins:
            if is_local(pin.source):
                _, wheel = self._local.bring(pin.source)
                pin = replace(pin, hashes=[digest(wheel)]) if may_differ(pin.source) else pin
            found.append(pin)
        return found

    def _install(self, pins: Sequence[Pin], overlay: Path) -> None:
        lock = self._list("lock.txt", (pin.requirement for pin in pins))
        command = ["pip", "install", "--no-deps", "--target", str(overlay), "--requirement", str(lock)]
        self._uv.run(*command, "--link-mode", "copy")
        # Overlays can be read-only. The bytecode goes without the sources' times, which an archive does not keep.
        # Nor does it keep this folder's name, so that the same packages always make the same archive.
        compiling = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-j", "0"]
        # It fails for files that are meant for another Python, which is no failure of the build.
        subprocess.run([*compiling, "-s", str(overlay), str(overlay)], capture_output=True)

    def _list(self, name: str, requirements: Iterable[str]) -> Path:
        path = self._scratch / name
        path.write_text("".join(f"{line}\n" for line in requirements))
        return path


def _name(line: str) -> str:
    """The package in a line of uv's plan; empty if the line is not understood."""
    match = _ADDED.match(line)
    return canonical_name(match["name"]) if match else ""


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
