"""A refusal of uv's in the user's words: the lines with their requirements, and the packages of the image that stay."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tomllib

from weft_trainer.packages.request import canonical_name

_NAME = re.compile(r"^\s*(?:-e\s+)?([A-Za-z0-9][A-Za-z0-9._-]*)")
_NEEDS = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:[=<>!~][^\s,]+)? depends on ([A-Za-z0-9][A-Za-z0-9._-]*[^\s]*[^\s,.])"
)
_MOST = 6


@dataclass(frozen=True)
class Source:
    """A requirement, and where it stands."""

    place: str
    """``framework.packages[0]``, ``requirements.txt line 3``."""
    text: str

    @property
    def name(self) -> str:
        match = _NAME.match(self.text)
        return canonical_name(match[1]) if match else ""


def read_packages(packages: Sequence[str]) -> list[Source]:
    """The requirements of a manifest."""
    return [Source(f"framework.packages[{at}]", text) for at, text in enumerate(packages)]


def read_file(name: str, path: Path) -> list[Source]:
    """The requirements of a file of the code, with their lines."""
    lines = path.read_text(errors="replace").splitlines()
    if path.suffix == ".toml":
        return [
            Source(f"{name} line {number}", text)
            for text in _dependencies(path)
            for number in [next((at for at, line in enumerate(lines, start=1) if text in line), 0)]
            if number
        ]
    found = []
    for number, line in enumerate(lines, start=1):
        text = line.split(" #")[0].strip()
        if text and not text.startswith("#"):
            found.append(Source(f"{name} line {number}", text))
    return found


def _dependencies(project: Path) -> list[str]:
    """The requirements of a pyproject.toml; uv reports its problems."""
    try:
        return [str(text) for text in tomllib.loads(project.read_text())["project"]["dependencies"]]
    except (ValueError, LookupError, TypeError):
        return []


def explain(said: Sequence[str], sources: Sequence[Source], fixed: Mapping[str, str]) -> str:
    """The message of a refusal.

    Args:
        said: all lines of uv's.
        sources: of the requirements.
        fixed: packages of the image that stay, by name, as requirements.
    """
    start = next((at for at, line in enumerate(said) if line.lstrip().startswith(("error:", "×"))), 0)
    text = " ".join(line.strip() for line in said[start:] if line.strip())
    text = re.sub(r"\s+", " ", text).removeprefix("error: ").replace(" cause: ", ": ")
    # Not in a message, and not in a log: an index's address may have a password in it.
    text = re.sub(r"://[^/@\s]+@", "://", text)
    parts = [text]
    named = {canonical_name(word) for word in re.findall(r"[A-Za-z0-9][A-Za-z0-9._-]*", text)}
    asked = [source for source in sources if source.name in named]
    if asked:
        parts.append("Asked for by " + "; ".join(f"{source.place}: {source.text}" for source in asked[:_MOST]))
    needs = {canonical_name(package): needed for package, needed in _NEEDS.findall(text)}
    for name, requirement in fixed.items():
        if name in named:
            also = f", and needs {needs[name]}" if name in needs else ""
            parts.append(f"Of the image, {requirement} stays{also}: its other parts were built for it")
    return ". ".join(part.rstrip(".") for part in parts)
