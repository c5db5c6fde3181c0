"""The packages that a job needs besides its image's: what a manifest may ask for, and the job that builds them.

A *package build* resolves the packages against the image and makes an *overlay* of those that are missing. It is a job
with one learner and without GPUs: the packages' own code runs where a learner's code runs, and nowhere else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from weft_core.catalogue import Catalogue
from weft_core.manifest.models import DataStore, Framework, Manifest, Repository, TrainingData
from weft_core.requirement_files import CodeFiles

BUILD_KIND = "packages"
"""The kind of a job that is a package build."""
_NAME = "packages"
_COMMAND = 'exec "$WEFT_IMAGE_PYTHON" -m weft_trainer.packages.build'
_REQUEST, _SECRET = "WEFT_PACKAGES", "WEFT_INDEX_SECRET"
_LONGEST = 2 * 3600.0
PYPI = ("https://pypi.org", "https://files.pythonhosted.org")
"""The URLs of the index that uv takes when nobody names one."""
_MOST_CPUS = 4.0
_LEAST_MEMORY = 1 << 30
"""Bytes: resolving and unpacking packages needs more than the smallest learners have."""
_WHEELS = ["*.whl"]


@dataclass(frozen=True)
class PackageRequest:
    """The packages that a job asks for, in the environment that they are for."""

    manifest: Manifest
    """The job's engine. Its machines decide on the Python, so an overlay is for one engine."""
    files: CodeFiles
    code_sha256: str | None
    """The code, where the build needs it."""
    default_index: str | None = None
    """The installation's index of packages; None: as learners' machines have it."""

    @property
    def key(self) -> str:
        """A hash that is the same for the same request."""
        asked = self.manifest.framework
        image = Catalogue.load().get(asked.image)
        parts: list[Any] = [asked.image, image.digest if image else None, self.manifest.engine, sorted(asked.packages)]
        parts += [asked.requirements, sorted(asked.wheels), self.files.digest]
        parts += [asked.index.model_dump() if asked.index else None]
        repository = _repository(self.manifest)
        parts += [repository.model_dump(exclude={"ref"}) if repository else None]
        parts += [store.model_dump(exclude={"id"}) for store in _wheel_stores(self.manifest)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def build_manifest(manifest: Manifest, default_index: str | None, known: Sequence[str] = ()) -> Manifest:
    """The manifest of the job that builds the packages of ``manifest``.

    It has no GPUs, and the other resources of one learner, so it fits where a learner does: at most four CPUs, and at
    least 1 GiB of memory.

    Args:
        manifest: of the job that needs them.
        default_index: the installation's index of packages; None: as learners' machines have it.
        known: hashes of locks that have an overlay. A request that resolves to one of them installs nothing.
    """
    framework, stores = manifest.framework, _wheel_stores(manifest)
    request = {
        "packages": framework.packages,
        "requirements": framework.requirements,
        "wheels": framework.wheels,
        "stores": bool(stores),
        "index": framework.index.url if framework.index else None,
        "default_index": default_index,
        "known": list(known),
    }
    secret = framework.index.secret if framework.index else None
    sizes = manifest.resources
    cpus, memory = min(sizes.cpus, _MOST_CPUS), max(sizes.memory, _LEAST_MEMORY)
    return Manifest(
        name=_NAME,
        description=f"packages for {manifest.name}",
        engine=manifest.engine,
        priority=manifest.priority,
        profile=manifest.profile,
        resources=replace(sizes, cpus=cpus, memory=memory, gpus=0, gpu_type=None, extra={}),
        framework=Framework(
            name=framework.name,
            version=framework.version,
            launcher="none",
            command=_COMMAND,
            image=framework.image,
        ),
        repo=_repository(manifest),
        data_stores=stores,
        env={_REQUEST: json.dumps(request)},
        secrets={_SECRET: secret} if secret else {},
        keep_leftovers=False,
        max_runtime_seconds=_LONGEST,
    )


def with_pins(manifest: Manifest, lock: Sequence[Mapping[str, Any]]) -> Manifest:
    """A build's manifest that installs exactly the packages of an earlier ``lock``."""
    request = json.loads(manifest.env[_REQUEST]) | {"pins": list(lock)}
    return manifest.model_copy(update={"env": manifest.env | {_REQUEST: json.dumps(request)}})


def indexes(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """The URLs that a build talks to, from its manifest in canonical form."""
    request = json.loads(manifest["env"][_REQUEST])
    default = request.get("default_index")
    return tuple(filter(None, (request.get("index"), *((default,) if default else PYPI))))


def asks_for_packages(framework: Framework) -> bool:
    return bool(framework.packages or framework.requirements)


def _repository(manifest: Manifest) -> Repository | None:
    """The repository, if the build needs the code in it."""
    return manifest.repo if manifest.framework.requirements or manifest.framework.wheels else None


def _wheel_stores(manifest: Manifest) -> list[DataStore]:
    """The data stores that have wheels, with the wheels as the build's training data: it comes as a job's does."""
    return [
        DataStore(
            id=store.id,
            type=store.type,
            connection=store.connection,
            datastore=store.datastore,
            training_data=TrainingData(container=store.wheels.container, prefix=store.wheels.prefix, include=_WHEELS),
        )
        for store in manifest.data_stores
        if store.wheels is not None
    ]
