"""Requirements of Python packages: whether they can be read, and whether an image can meet them."""

from __future__ import annotations

import re

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from weft_core.catalogue import Image

FIXED = re.compile(r"torch|torchvision|torchaudio|triton|tensorflow|tensorflow-cpu|horovod|ray|jax|jaxlib|nvidia-.*")
"""Packages of an image that no job can replace: they are compiled against each other, or against the machine's GPUs.
The agent has a copy of this expression."""
_ELSEWHERE = re.compile(r"^\s*(-[rce]\b|--(requirement|constraint|editable|find-links)\b|[./~]|file:)|@\s*file:", re.M)


def refers_elsewhere(text: str) -> bool:
    """Whether requirements name other files of the code, so that all of it decides on the packages."""
    return bool(_ELSEWHERE.search(text))


def requirement_lines(name: str, text: str) -> tuple[tuple[str, str], ...]:
    """The requirements of a requirements.txt, each with its place. Options and comments are left out."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        requirement = re.split(r"(?:^|\s)#", line)[0].strip()
        if requirement and not requirement.startswith("-"):
            found.append((f"{name} line {number}", requirement))
    return tuple(found)


def check_requirement(text: str) -> str | None:
    """What is wrong with a requirement of a manifest; None: nothing is."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        return f"not a requirement: {str(error).splitlines()[0]}"
    if requirement.url and re.match(r"\w+(\+\w+)?://[^/@]*@", requirement.url):
        return "a URL with a user name or password in it: `index: {url: …, secret: …}` keeps them on the server"
    return None


def find_conflict(text: str, image: Image) -> str | None:
    """Why an image can't have a requirement, as far as the image's own lock shows it; None: it may have it.

    The conflicts of requirements' requirements show only when they are resolved.
    """
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    name = canonicalize_name(requirement.name)
    version = image.packages.get(name)
    if version is None or (requirement.marker and not requirement.marker.evaluate()):
        return None
    fits = not requirement.url and requirement.specifier.contains(version, prereleases=True)
    if FIXED.fullmatch(name) and not fits:
        return f"image {image.reference} has {name} {version}, which stays: its other parts are built for it"
    return None
