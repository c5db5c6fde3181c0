"""Docstrings as Markdown: those of attributes, which stand below them, and Google's sections (``Args:`` …)."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from textwrap import dedent

from docs.generate.markdown import blocks, bullets, code, fenced, prose

_SECTION = re.compile(r"(Args|Attributes|Returns|Raises|Warns):")
_ITEM = re.compile(r"([A-Za-z_][\w.]*(?:, [A-Za-z_][\w.]*)*): (.*)", re.DOTALL)
_HEADINGS = {"Args": "Arguments"}


@cache
def attribute_docs(of: type) -> Mapping[str, str]:
    """The docstrings below a class's attributes, and below those that it inherits from other classes of ours."""
    docs: dict[str, str] = {}
    for base in reversed(of.__mro__):
        if base.__module__.partition(".")[0] in ("weft", "weft_core"):
            docs |= _own_docs(base)
    return docs


def _own_docs(of: type) -> dict[str, str]:
    (definition,) = ast.parse(dedent(inspect.getsource(of))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for attribute, text in zip(definition.body, definition.body[1:], strict=False):
        if not (isinstance(attribute, ast.AnnAssign) and isinstance(attribute.target, ast.Name)):
            continue
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str):
            found[attribute.target.id] = text.value.value
    return found


def own_doc(of: object) -> str:
    """An object's own docstring, not one that it inherits or that was made for it (a dataclass's)."""
    text = getattr(of, "__doc__", None) or ""
    return "" if re.match(r"\w+\(", text) else inspect.cleandoc(text)


def document(text: str) -> str:
    """A docstring as Markdown."""
    return blocks(_part(part) for part in _parts(text))


def _parts(text: str) -> Iterator[str]:
    """Paragraphs, sections and examples; what is indented belongs to the line above it."""
    part: list[str] = []
    for line in text.split("\n"):
        begins = bool(line) and not line.startswith(" ")
        section = bool(part) and _SECTION.fullmatch(part[0]) is not None
        if part and ((not line and not section) or (begins and section)):
            yield "\n".join(part)
            part = []
        if line or part:
            part.append(line)
    yield "\n".join(part)


def _part(part: str) -> str:
    heading, _, body = part.partition("\n")
    section = _SECTION.fullmatch(heading)
    if dedent(part).startswith(">>>"):
        return fenced(dedent(part), "pycon")
    if section is None:
        return prose(part)
    name = _HEADINGS.get(section[1], section[1])
    if section[1] == "Returns":
        return f"{name}: {prose(body)}"
    return f"{name}:\n\n{bullets(_item(item) for item in _items(dedent(body)))}"


def _items(body: str) -> Iterator[str]:
    yield from (item for item in re.split(r"\n(?=\S)", body) if item.strip())


def _item(item: str) -> str:
    found = _ITEM.fullmatch(item.strip())
    if found is None:
        return prose(item)
    return ", ".join(code(name) for name in found[1].split(", ")) + f": {prose(found[2])}"
