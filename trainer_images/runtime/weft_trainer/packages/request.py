"""A build's request, as the service passes it, and its outcome."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from weft_trainer.errors import TrainerError

REQUEST_VARIABLE = "WEFT_PACKAGES"
SECRET_VARIABLE = "WEFT_INDEX_SECRET"  # noqa: S105 - its name, not its value


@dataclass(frozen=True)
class BuildRequest:
    """The packages to resolve. Paths are relative to the code's folder."""

    packages: Sequence[str] = ()
    requirements: str | None = None
    """A requirements.txt, pyproject.toml or uv.lock."""
    wheels: Sequence[str] = ()
    """Globs of wheels in the code to install from."""
    stores: bool = False
    """Whether DATA_DIR has wheels, too."""
    index: str | None = None
    """The URL of a private index."""
    default_index: str | None = None
    """The URL of the index for everything else; None: as pip is configured for it."""
    pins: Sequence[Mapping[str, str]] | None = None
    """An earlier lock, to build again as it was."""
    known: Sequence[str] = ()
    """Hashes of locks that have an overlay already."""

    @classmethod
    def parse(cls, text: str) -> BuildRequest:
        """Raises: TrainerError."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise TrainerError(f"the service's request for packages can't be read: {error}") from None


@dataclass(frozen=True, order=True)
class Pin:
    """One package of a lock."""

    name: str
    version: str
    source: str = ""
    """The hash of its wheel if the job brought it; its path in the code, ``./lib``; or the URL that it came from.
    Empty: an index has it."""
    replaces: str = ""
    """The image's own version, behind which this one stands."""
    hashes: Sequence[str] = ()
    """``sha256:…`` of each file of this version that fits the image: an installer takes no other."""

    @property
    def requirement(self) -> str:
        """As an installer reads it."""
        pinned = f"{self.name} @ {self.source}" if "://" in self.source else f"{self.name}=={self.version}"
        return " ".join([pinned, *(f"--hash={digest}" for digest in self.hashes)])


@dataclass(frozen=True)
class Outcome:
    """The outcome of a build: ``lock.json`` beside ``overlay.zip``."""

    packages: Sequence[Pin]
    known: bool = False
    """An overlay with this lock is there already, so this build has none."""
    sha256: str | None = None
    """Of overlay.zip; None: there is none."""
    size: int = 0
    files: int = 0
    installed_bytes: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"lock_sha256": lock_digest(self.packages)}


def lock_digest(packages: Sequence[Pin]) -> str:
    """The lock's hash, which is the same for the same packages however they were asked for."""
    lines = sorted(" ".join([f"{pin.name}=={pin.version} {pin.source}", *sorted(pin.hashes)]) for pin in packages)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def canonical_name(name: str) -> str:
    """A package's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
