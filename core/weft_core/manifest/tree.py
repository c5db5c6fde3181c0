"""From text to a tree of nodes that know their line. Hostile YAML ends here.

Scalars stay as written: nothing guesses that ``yes`` is true, ``1.0`` a float or ``010`` eight. The field of a scalar
decides its meaning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from weft_core.manifest.problems import ManifestError, Problem

_MOST_NODES = 10_000
_DEEPEST = 24
_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq"))
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})

# libyaml's messages that need knowledge of parsers, and plain ones for them.
_PLAIN_WORDS = {
    "mapping values are not allowed in this context": "a ':' that can't be here: put a value that holds ': ' in quotes",
    "could not find expected ':'": "a key with no ':' after it",
    "did not find expected key": "no key where one should be: wrong indentation, or a quote that is not closed above",
    "did not find expected '-' indicator": "no '- ' where a list goes on: wrong indentation",
    "did not find expected ',' or ']'": "a list that is not closed: ',' or ']' is missing",
    "did not find expected ',' or '}'": "a mapping that is not closed: ',' or '}' is missing",
    "found unexpected end of stream": "the end of the text inside a quoted value: a quote is not closed",
    "did not find expected node content": "nothing where a value should be",
    "control characters are not allowed": "a control character, which YAML does not allow",
}


@dataclass(slots=True)
class Node:
    line: int | None
    """From 1; None for a value given with ``--set``."""
    size: int = field(default=1, kw_only=True)
    """Nodes in this tree once every alias is written out."""
    origin: str | None = field(default=None, kw_only=True)
    """The ``--set`` that it came with."""
    column: int | None = field(default=None, kw_only=True)
    """The column of its first character, from 1."""


@dataclass(slots=True)
class Scalar(Node):
    text: str
    style: str = ""
    """YAML's: nothing for a plain one, else its quote, or '>' or '|' of a block."""

    @property
    def plain(self) -> bool:
        return not self.style

    @property
    def is_null(self) -> bool:
        return self.plain and self.text in _NULLS


@dataclass(slots=True)
class Sequence(Node):
    items: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Mapping(Node):
    entries: list[tuple[Scalar, Node]] = field(default_factory=list)
    """As written: duplicates are there, for the reader to refuse."""

    def get(self, key: str) -> Node | None:
        return next((value for name, value in self.entries if name.text == key), None)


def fatal(
    message: str, line: int | None = None, *, accepted: str | None = None, column: int | None = None
) -> ManifestError:
    """An error after which nothing else can be checked."""
    return ManifestError([Problem("", message, line, accepted=accepted, column=column)])


def decode(source: str | bytes, limit: int) -> str:
    """The text of a manifest, if it is UTF-8 and not larger than ``limit`` bytes."""
    size = len(source)
    if size <= limit and isinstance(source, str):
        try:
            source = source.encode()
        except UnicodeEncodeError as error:
            raise fatal(f"not valid text: character {error.start} is half of a surrogate pair") from None
        size = len(source)
    if size > limit:
        raise fatal(f"the manifest has {size:,} bytes, accepted are {limit:,}", accepted=f"at most {limit:,} bytes")
    assert isinstance(source, bytes)
    try:
        return source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        raise fatal("not UTF-8 text: save the manifest as UTF-8", line, accepted="UTF-8 text") from None


def compose(text: str) -> Mapping:
    """The tree of a manifest's text.

    Raises:
        ManifestError: no YAML, not one mapping, or built to exhaust us.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    composer = _Composer()
    try:
        for event in yaml.parse(text, Loader=loader):
            composer.feed(event)
    except yaml.YAMLError as error:
        raise _syntax_error(error, text) from None
    root = composer.root
    if root is None or (isinstance(root, Scalar) and root.is_null):
        raise fatal("the manifest is empty", accepted="a mapping that begins with 'name: …'")
    if not isinstance(root, Mapping):
        found = "a list" if isinstance(root, Sequence) else "plain text"
        raise fatal(f"expected a mapping ('name: …' and so on), found {found}", root.line, accepted="a mapping")
    return root


def describe(node: Node | None) -> str:
    """The value, for an error message: short, and quoted if it is text."""
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    if not isinstance(node, Scalar) or node.is_null:
        return "nothing"
    text = node.text if len(node.text) <= 60 else node.text[:57] + "…"
    return repr(text)


@dataclass(slots=True)
class _Frame:
    """A collection whose end has not come yet."""

    node: Sequence | Mapping
    anchor: str | None
    key: Scalar | None = None
    """In a mapping, the key that waits for its value."""


class _Composer:
    """Builds the tree from the parser's events: no recursion, and a count of what aliases multiply.

    Never quotes what it refuses: it might be a password that begins with ``&``, ``*`` or ``!``.
    """

    def __init__(self) -> None:
        self.root: Node | None = None
        self._frames: list[_Frame] = []
        self._anchors: dict[str, Node] = {}
        self._unused: dict[str, int] = {}  # anchors on scalars that nothing refers to yet, and their lines
        self._values = 0
        self._documents = 0

    def feed(self, event: Any) -> None:
        line = event.start_mark.line + 1
        match event:
            case ScalarEvent():
                self._scalar(event, line)
            case AliasEvent():
                self._place(self._aliased(event.anchor, line), line)
            case SequenceStartEvent() | MappingStartEvent():
                self._begin(event, line)
            case SequenceEndEvent() | MappingEndEvent():
                self._end()
            case DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    raise fatal("a second YAML document ('---'): one manifest is one document", line)
            case StreamEndEvent():
                for unused in self._unused.values():
                    raise fatal("an anchor that nothing refers to: put a value that begins with '&' in quotes", unused)

    def _scalar(self, event: Any, line: int) -> None:
        _check_tag(event, line)
        if _CONTROL.search(event.value):
            raise fatal("a control character in a value, which is not accepted", line)
        node = Scalar(line, event.value, event.style or "", column=event.start_mark.column + 1)
        if event.anchor:
            self._anchors[event.anchor] = node
            self._unused[event.anchor] = line
        self._place(node, line)

    def _aliased(self, anchor: str | None, line: int) -> Node:
        node = self._anchors.get(anchor or "")
        if node is None:
            raise fatal(
                "an alias to what is not defined before it, or to itself: put a value that begins with '*' in quotes",
                line,
            )
        self._unused.pop(anchor or "", None)
        return node

    def _begin(self, event: Any, line: int) -> None:
        _check_tag(event, line)
        if len(self._frames) >= _DEEPEST:
            raise fatal(f"nested deeper than {_DEEPEST} levels: no manifest is that deep", line)
        if event.anchor:
            self._anchors.pop(event.anchor, None)  # unknown until it is complete, so that no loop can be built
        kind = Sequence if isinstance(event, SequenceStartEvent) else Mapping
        node = kind(line, column=event.start_mark.column + 1)
        self._frames.append(_Frame(node, event.anchor))

    def _end(self) -> None:
        frame = self._frames.pop()
        if isinstance(frame.node, Mapping):
            _merge(frame.node)
        if frame.anchor:
            self._anchors[frame.anchor] = frame.node
        self._place(frame.node, frame.node.line)

    def _place(self, node: Node, line: int | None) -> None:
        self._values += 1
        if not self._frames:
            self.root = node
            return
        frame = self._frames[-1]
        frame.node.size += node.size
        if max(frame.node.size, self._values) > _MOST_NODES:
            raise fatal(
                f"more than {_MOST_NODES:,} values (every alias counts in full): no manifest is that long", line
            )
        if isinstance(frame.node, Sequence):
            frame.node.items.append(node)
        elif frame.key is not None:
            frame.node.entries.append((frame.key, node))
            frame.key = None
        elif isinstance(node, Scalar):
            frame.key = node
        else:
            raise fatal(f"{describe(node)} as a key: put a value that begins with '{{' or '[' in quotes", line)


def _check_tag(event: Any, line: int) -> None:
    if event.tag is not None and event.tag != "!" and event.tag not in _TAGS:
        raise fatal("a YAML tag, which is not accepted: put a value that begins with '!' in quotes", line)


def _merge(mapping: Mapping) -> None:
    """Write out YAML's merge key ``<<``: the entries of what it names, where the mapping has none of its own."""
    merges = [value for key, value in mapping.entries if key.plain and key.text == "<<"]
    if not merges:
        return
    mapping.entries = [entry for entry in mapping.entries if not (entry[0].plain and entry[0].text == "<<")]
    for value in merges:
        for source in value.items if isinstance(value, Sequence) else [value]:
            if not isinstance(source, Mapping):
                raise fatal(f"'<<' merges mappings, found {describe(source)}", source.line)
            own = {key.text for key, _ in mapping.entries}
            mapping.entries += [entry for entry in source.entries if entry[0].text not in own]


def _syntax_error(error: yaml.YAMLError, text: str) -> ManifestError:
    """The parser's complaint in our words, with line and column; never the text itself."""
    words = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "the text can't be read")
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        position = getattr(error, "position", None)
        line = text.encode()[:position].count(b"\n") + 1 if isinstance(position, int) else None
        return fatal(f"not valid YAML: {_PLAIN_WORDS.get(words, words)}", line)
    # The error of a text that ends too soon is located behind the last line.
    line, column = min(mark.line + 1, len(text.splitlines()) or 1), mark.column + 1
    lines = text.split("\n", line)
    before = lines[line - 1][:column] if line <= len(lines) else ""
    if "\t" in before and not before.strip():
        words = "a tab where indentation goes: YAML indents with spaces"
    elif words == "found character that cannot start any token":
        words = "a value can't begin like this: put a value that begins with '@', '`' or '%' in quotes"
    return fatal(f"not valid YAML at column {column}: {_PLAIN_WORDS.get(words, words)}", line, column=column)
