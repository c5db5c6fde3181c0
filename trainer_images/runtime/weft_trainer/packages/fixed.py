"""The packages of an image that stay as they are, and the packages that must fit them."""

from __future__ import annotations

import importlib.metadata
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from weft_trainer.packages.request import Pin, canonical_name

_FIXED = re.compile(r"torch|torchvision|torchaudio|triton|tensorflow|tensorflow-cpu|horovod|ray|jax|jaxlib|nvidia-.*")
"""Packages of the image that stay as they are: compiled against each other, or against the machine's GPUs."""
_SAME_MAJOR = ("numpy",)
"""Packages that the fixed ones were compiled against: any version of the same major number works."""
_OF_TORCH = ("torchvision", "torchaudio")
"""Packages whose compiled parts work with one build of torch, which their requirements do not say."""


def installed_packages() -> dict[str, str]:
    """The versions of the image's packages, by name."""
    return dict(_installed())


def fixed_packages() -> dict[str, str]:
    """The image's packages that stay, by name, as requirements."""
    found = {}
    for name, version in _installed():
        if _FIXED.fullmatch(name):
            found[name] = f"{name}=={version}"
        elif name in _SAME_MAJOR:
            major = int(version.partition(".")[0])
            found[name] = f"{name}>={major},<{major + 1}"
    return found


def other_build(pin: Pin, fixed: Mapping[str, str], wheel: Path | None) -> str:
    """Why a package does not work with the image's torch, because it was compiled for another build; empty: it does.

    Args:
        pin: of a lock.
        fixed: the image's packages that stay.
        wheel: its file, if the job brings it.
    """
    name, torch = canonical_name(pin.name), fixed.get("torch", "").partition("==")[2]
    if name not in _OF_TORCH or name in fixed or not torch:
        return ""
    wanted = _local(torch)
    named = _exact_torch(wheel) if wheel is not None else pin.version
    if named is None or _local(named) == wanted:
        return ""
    mark = f"+{wanted}"
    fits = f"{name} {pin.version.partition('+')[0]}{mark}" if wanted else f"a {name} without {_local(pin.version)!r}"
    return (
        f"{name} {pin.version} is compiled for another build of torch than the image's torch {torch}, which stays. "
        f"{fits} fits: name an index that has it by `framework.index`, or bring its wheel by `framework.wheels`"
    )


def _local(version: str) -> str:
    """The part after the ``+`` in ``2.13.0+cpu``."""
    return version.partition("+")[2]


def _exact_torch(wheel: Path) -> str | None:
    """The build of torch that a wheel takes, as a version; its own version where it takes one version of torch, in any
    build; None: it does not say."""
    with zipfile.ZipFile(wheel) as archive:
        about = next((name for name in archive.namelist() if name.endswith(".dist-info/METADATA")), None)
        text = archive.read(about).decode(errors="replace") if about else ""
    found = re.search(r"^Requires-Dist: torch\s*\(?===?\s*([^\s;,)*]+)", text, re.MULTILINE)
    if found is None:
        return None
    return found[1] if "+" in found[1] else wheel.name.split("-")[1]


def _installed() -> Iterator[tuple[str, str]]:
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            yield canonical_name(name), distribution.version
