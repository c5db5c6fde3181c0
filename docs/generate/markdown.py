"""Markdown that code hosts and MkDocs read alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

_ROLE = re.compile(r":(?:class|meth|func|mod|attr):`(~?)([^`]+)`")
_PAGE = re.compile(r"\(docs/([a-z0-9-]+)\.md\)")
_CODE = re.compile(r"(`+)(?:(?!\1).)+\1", re.DOTALL)


def code(text: str) -> str:
    """Text as code; nothing stays nothing."""
    return f"`{text}`" if text else ""


def fenced(text: str, language: str = "") -> str:
    return f"```{language}\n{text.strip()}\n```"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def blocks(parts: Iterable[str]) -> str:
    """Paragraphs, headings, tables, …: those that are not empty, a blank line between them."""
    return "\n\n".join(part for part in (text.strip("\n") for text in parts) if part)


def prose(text: str) -> str:
    """A docstring's text (reStructuredText as this project writes it) or a help text as Markdown."""
    text = _ROLE.sub(_role, " ".join(text.split())).replace("``", "`")
    return _PAGE.sub(r"([\1](../\1.md))", outside_code(text, _escaped))


def sentence(text: str) -> str:
    """The first sentence of a text."""
    return re.split(r"(?<=\.)\s+(?=[A-Z`])", text.strip(), maxsplit=1)[0]


def _role(match: re.Match[str]) -> str:
    name = match[2].rpartition(".")[2] if match[1] else match[2]
    return f"``{name}``"


def _escaped(text: str) -> str:
    """No HTML, no emphasis and no link by accident."""
    return re.sub(r"([*\[\]])", r"\\\1", text.replace("<", "&lt;"))


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """``change`` applied to what stands between pieces of code."""
    parts, at = [], 0
    for match in _CODE.finditer(text):
        parts += [change(text[at : match.start()]), match[0]]
        at = match.end()
    return "".join([*parts, change(text[at:])])


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))
