"""The packages of a run: built by a run of their own, and kept for the next one."""

from __future__ import annotations

import json
import queue
import shutil
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from weft_core.bundle import BundleInfo
from weft_core.catalogue import Catalogue
from weft_core.launch import BundleInput, RepositoryInput
from weft_core.lifecycle.states import JobState
from weft_core.manifest import ParsedManifest
from weft_core.packages import PackageRequest, asks_for_packages, build_manifest
from weft_core.requirement_files import CodeFiles, read_code_files
from weft_core.settings import Settings
from weft_core.words import count, size
from weft_embedded.run.data_dir import LinkedData
from weft_embedded.run.engine import home
from weft_embedded.run.folder import OutFolder
from weft_embedded.run.request import Request, RunError
from weft_embedded.run.runner import Job, run
from weft_embedded.run.server import LearnerServer
from weft_embedded.run.stores import Stores, find_secrets, find_wheels

_FRESH = 7 * 24 * 3600.0
"""How long a request keeps the versions that it resolved to first, as on a server."""
_TALK = "packages: "


@dataclass(frozen=True)
class Archive:
    """The overlay of a run."""

    path: Path
    sha256: str

    def bundle(self, url: str) -> BundleInput:
        return BundleInput(sha256=self.sha256, size=self.path.stat().st_size, url=url)


def bring_packages(
    request: Request,
    parsed: ParsedManifest,
    code: BundleInfo | None,
    repository: RepositoryInput | None,
    settings: Settings,
    news: queue.SimpleQueue[Any],
    tell: Callable[..., None],
) -> Archive | None:
    """The packages that the manifest asks for, built if they are not here; None: the image lacks nothing.

    Raises:
        RunError: they can't be built.
    """
    framework = parsed.manifest.framework
    if not asks_for_packages(framework):
        return None
    if repository is not None and parsed.manifest.repo is not None:
        pinned = parsed.manifest.repo.model_copy(update={"commit": repository.commit})
        parsed = replace(parsed, manifest=parsed.manifest.model_copy(update={"repo": pinned}))
    asked = PackageRequest(parsed.manifest, _code_files(request, parsed, code), None)
    folder = home() / "packages" / asked.key
    lock = folder / "results" / "lock.json"
    if not lock.exists() or time.time() - lock.stat().st_mtime > _FRESH:
        _build(folder, request, parsed, code, repository, settings, news, tell)
    found = json.loads(lock.read_text())
    total = count(len(found["packages"]), "package")
    tell("event", kind="packages", message=f"packages: {total} besides the image's, {size(found['installed_bytes'])}")
    return Archive(lock.with_name("overlay.zip"), found["sha256"]) if found["sha256"] else None


def _code_files(request: Request, parsed: ParsedManifest, code: BundleInfo | None) -> CodeFiles:
    framework = parsed.manifest.framework
    if parsed.manifest.repo is not None or not (framework.requirements or framework.wheels):
        return CodeFiles()
    if code is None or request.code is None:
        raise RunError("framework.requirements and framework.wheels name files of the code, and there is no code")
    with zipfile.ZipFile(request.code) as bundle:
        files, problems = read_code_files(bundle, framework, code.sha256, Catalogue.load().get(framework.image))
    if problems:
        raise RunError("; ".join(f"{problem.path}: {problem.message}" for problem in problems))
    return files


def _build(
    folder: Path,
    request: Request,
    parsed: ParsedManifest,
    code: BundleInfo | None,
    repository: RepositoryInput | None,
    settings: Settings,
    news: queue.SimpleQueue[Any],
    tell: Callable[..., None],
) -> None:
    """A run of the package build, as a server has a job for it. Another run's build in the same folder is refused."""
    manifest = build_manifest(parsed.manifest, settings.images.package_index)
    parsed = replace(parsed, manifest=manifest)
    secrets, stores = find_secrets(request, parsed), Stores(find_wheels(request, parsed))
    data = LinkedData([], alone=False, learners=1)
    shutil.rmtree(folder / "results", ignore_errors=True)
    out, said = OutFolder(folder), []

    def hear(what: str, /, **fields: Any) -> None:
        if what == "line":
            said.append(fields["text"])
            tell("event", kind="packages", message=_TALK + fields["text"].removeprefix(_TALK))

    with out.taken():
        spaces = {"results": out.results, "checkpoints": out.checkpoints}
        with LearnerServer(spaces, out.incoming, request.code).serving() as server:
            bundle = BundleInput(sha256=code.sha256, size=code.size, url=server.code_url) if code else None
            fetched = repository if manifest.repo else None
            job = Job(manifest, stores, data, secrets, bundle, None, settings.timings, 0, fetched)
            ended = run(job, out, server, news, hear)
    if ended.state is not JobState.COMPLETED:
        why = next((line.removeprefix(_TALK) for line in reversed(said) if line.startswith(_TALK)), ended.reason)
        raise RunError(f"packages: {why}")
