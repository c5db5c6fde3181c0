"""The catalogue of trainer images: which environment serves a manifest's ``framework`` and ``version``.

The data is ``trainer_images/catalogue.toml``; its head says what each key means.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from weft_core import bundled
from weft_core.launch import Launcher

UNSERVED: Mapping[str, str] = {
    "caffe": "Caffe has seen no release since 2017",
    "caffe2": "Caffe2 has become a part of PyTorch: use framework pytorch",
    "h2o3": "H2O-3 needs a JVM",
    "pytorchmpi": "PyTorch needs no MPI build for several learners: use framework pytorch",
}
"""The frameworks of FfDL that no image of Weft serves, with the reasons."""


_VARIANTS = ("cpu", "cuda")


class CatalogueError(Exception):
    """A manifest asks for something that no image serves. The message is for the user."""

    def __init__(self, message: str, accepted: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.accepted = tuple(accepted)


class UnknownFramework(CatalogueError):
    """No image serves this framework. ``accepted`` lists the frameworks that have an image."""


class UnknownVersion(CatalogueError):
    """No image serves this version of the framework. ``accepted`` lists the versions that have an image."""


@dataclass(frozen=True)
class Image:
    """An environment for learners."""

    name: str
    version: str
    folder: Path
    lock: Path
    frameworks: tuple[str, ...]
    launchers: tuple[Launcher, ...]
    default_launcher: Launcher
    pip: tuple[str, ...] = ()
    """Options for pip's install of the lock."""
    build: Path | None = None
    """A program that builds packages that no index has as wheels. Its arguments are the environment's python and a
    cache for wheels."""
    imports: tuple[str, ...] = ()
    """Modules that most programs import. A new environment imports them once, as jobs can't store bytecode in it."""
    devices: tuple[str, ...] = ("cpu", "gpu")
    """The devices that the image can be built for."""
    variants: tuple[Path, ...] = ()
    """The locks of the packages that differ for CPUs and for CUDA, in this order; an environment has one of them."""

    @property
    def reference(self) -> str:
        """The image's name in a launch spec: ``horovod:0.28.1-torch2.13``."""
        return f"{self.name}:{self.version}"

    @cached_property
    def packages(self) -> Mapping[str, str]:
        """The versions of the packages in the lock and in that of the variant for CPUs, by canonical name."""
        text = "\n".join(path.read_text(encoding="utf-8") for path in (self.lock, *self.variants[:1]))
        pins = re.findall(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;#+]+)", text, re.MULTILINE)
        return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins}

    def parts(self) -> list[bytes]:
        """The parts of the catalogue that decide its content: the locks, the build program, pip's options."""
        locks = [path.read_bytes() for path in (self.lock, *self.variants)]
        return [*locks, self.build.read_bytes() if self.build else b"", *map(str.encode, self.pip)]

    @property
    def digest(self) -> str:
        """``sha256:…`` of :meth:`parts`. It changes with the version of any locked package, and is the same on all
        engines."""
        parts = (hashlib.sha256(part).digest() for part in self.parts())
        return f"sha256:{hashlib.sha256(b''.join(parts)).hexdigest()}"


class Catalogue:
    """The images of this installation, and the aliases that map other versions to them."""

    def __init__(self, images: Iterable[Image], aliases: Mapping[str, str]) -> None:
        self.images = tuple(images)
        self.aliases = dict(aliases)
        self._by_reference = {image.reference: image for image in self.images}

    @staticmethod
    def load(folder: Path | None = None) -> Catalogue:
        """The catalogue in ``folder`` (default: the shipped ``trainer_images``). A process reads it once."""
        return _load(folder or bundled.path("trainer_images"))

    @property
    def frameworks(self) -> tuple[str, ...]:
        """The frameworks that have an image, in the order of the catalogue."""
        return tuple(dict.fromkeys(framework for image in self.images for framework in image.frameworks))

    def get(self, reference: str) -> Image | None:
        """The image ``name:version``, exactly; None for a custom one."""
        return self._by_reference.get(reference)

    def versions(self, framework: str) -> tuple[str, ...]:
        """The versions of the images that serve ``framework``, the newest first."""
        return tuple(image.version for image in _newest_first(self._serving(framework)))

    def resolve(self, framework: str, version: str | None = None, aliases: Mapping[str, str] | None = None) -> Image:
        """The image for a manifest's framework and version.

        An exact version wins, then an alias, then a dotted prefix (``2.13`` for 2.13.0; the newest of several). No
        version: what the alias ``<framework>:latest`` names, else the newest.

        Args:
            aliases: the installation's aliases, which win over the shipped aliases.

        Raises:
            UnknownFramework: no image serves the framework.
            UnknownVersion: no image serves this version, or an alias names an image that does not exist.
        """
        serving = self._serving(framework)
        if not serving:
            raise UnknownFramework(_no_framework(framework), self.frameworks)
        if version:
            for image in serving:
                if version in (image.version, image.reference):
                    return image
        known = {**self.aliases, **(aliases or {})}
        target = known.get(f"{framework}:{version or 'latest'}")
        if target is not None:
            return self._of_alias(f"{framework}:{version or 'latest'}", target)
        fitting = [image for image in serving if not version or _is_prefix(version, image.version)]
        if not fitting:
            accepted = self.versions(framework)
            raise UnknownVersion(f"no image has version {version!r} of {framework}", accepted)
        preferred = self._by_reference.get(known.get(f"{framework}:latest", ""))
        return preferred if preferred in fitting else _newest_first(fitting)[0]

    def _serving(self, framework: str) -> list[Image]:
        return [image for image in self.images if framework in image.frameworks]

    def _of_alias(self, alias: str, target: str) -> Image:
        name, _, version = target.partition(":")
        fitting = [image for image in self.images if image.name == name and _is_prefix(version, image.version)]
        if target in self._by_reference:
            return self._by_reference[target]
        if not fitting:
            raise UnknownVersion(
                f"this installation maps {alias} to {target}, which the catalogue does not have: "
                "images.aliases in its settings must be corrected",
                self._by_reference,
            )
        return _newest_first(fitting)[0]


def _no_framework(framework: str) -> str:
    if framework in UNSERVED:
        return (
            f"no image serves {framework} ({UNSERVED[framework]}); for an image of your own write "
            "framework.name: custom and framework.version: <image reference>"
        )
    return f"no image of this installation provides {framework} yet"


def _is_prefix(version: str, full: str) -> bool:
    return not version or full == version or full.startswith((version + ".", version + "-"))


def _newest_first(images: Iterable[Image]) -> list[Image]:
    return sorted(images, key=lambda image: [int(part) for part in re.findall(r"\d+", image.version)], reverse=True)


@lru_cache(maxsize=8)
def _load(folder: Path) -> Catalogue:
    document = tomllib.loads((folder / "catalogue.toml").read_text(encoding="utf-8"))
    return Catalogue((_image(folder, entry) for entry in document["images"]), document.get("aliases", {}))


def _image(root: Path, entry: Mapping[str, Any]) -> Image:
    folder = root / entry["folder"]
    if entry["default_launcher"] not in entry["launchers"]:
        raise ValueError(f"catalogue.toml: {entry['name']}: default_launcher is none of its launchers")
    return Image(
        name=entry["name"],
        version=entry["version"],
        folder=folder,
        lock=folder / entry["lock"],
        variants=tuple(root / entry["variants"] / f"{name}.lock" for name in _VARIANTS) if "variants" in entry else (),
        frameworks=tuple(entry["frameworks"]),
        launchers=tuple(entry["launchers"]),
        default_launcher=entry["default_launcher"],
        devices=tuple(entry.get("devices", ("cpu", "gpu"))),
        pip=tuple(entry.get("pip", ())),
        imports=tuple(entry.get("imports", ())),
        build=folder / entry["build"] if entry.get("build") else None,
    )
