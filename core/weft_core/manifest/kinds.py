"""The kinds of values that a manifest's fields have.

A kind reads a node, words its problems, and knows its JSON schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Mapping as MappingType
from dataclasses import dataclass
from typing import Any, Protocol

from weft_core.manifest.findings import INVALID, Findings
from weft_core.manifest.problems import MOST_PROBLEMS, did_you_mean, one_of
from weft_core.manifest.tree import Mapping, Node, Scalar, Sequence, describe

Json = dict[str, Any]


class Kind(Protocol):
    @property
    def accepted(self) -> str:
        """The accepted values, in words that follow 'expected'."""

    def read(self, node: Node, path: str, findings: Findings) -> Any:
        """The node's value, or INVALID after a complaint."""

    def schema(self) -> Json:
        """Its JSON schema."""


@dataclass(frozen=True)
class Text:
    """Text, as written: ``1.0`` and ``yes`` are the texts '1.0' and 'yes'."""

    accepted: str = "text"
    most: int = 255
    pattern: str | None = None
    check: Callable[[str], str | None] | None = None
    """Says what is wrong with a text, to follow ``expected …: ``."""
    sensitive: bool = False
    verbatim: bool = False
    """Neither stripped, nor is ``null`` or nothing an absent value."""

    def read(self, node: Node, path: str, findings: Findings) -> Any:
        if not isinstance(node, Scalar) or (node.is_null and not self.verbatim):
            return findings.expected(path, node, self.accepted, sensitive=self.sensitive)
        text = node.text if self.verbatim else node.text.strip()
        if len(text) > self.most:
            message = f"{len(text):,} characters, accepted are at most {self.most:,}"
            findings.add(path, message, node=node, accepted=f"at most {self.most:,} characters")
            return INVALID
        if self.pattern and not re.fullmatch(self.pattern, text):
            return findings.expected(path, node, self.accepted, sensitive=self.sensitive)
        wrong = self.check(text) if self.check else None
        if wrong:
            findings.add(
                path, wrong, node=node, found=None if self.sensitive else describe(node), accepted=self.accepted
            )
            return INVALID
        return text

    def schema(self) -> Json:
        # A number or a truth value is fine where text goes: its spelling is the text.
        schema: Json = {"type": ["string", "number", "boolean"], "maxLength": self.most}
        if self.pattern:
            schema["pattern"] = f"^(?:{self.pattern})$"
        return schema


@dataclass(frozen=True)
class Command(Text):
    """A command for bash, of one line or several."""

    accepted: str = "a command"
    most: int = 65536

    def read(self, node: Node, path: str, findings: Findings) -> Any:
        command = Text.read(self, node, path, findings)
        if isinstance(node, Scalar) and node.style == ">" and isinstance(command, str):
            # YAML folds no line that is indented further, and FfDL's own examples indent options like that: without
            # this, bash would take them for a second command.
            command = re.sub(r"\n[ \t]+(?=--?[A-Za-z])", " ", command)
        return command


@dataclass(frozen=True)
class Whole:
    """A whole number; ``2``, ``"2"`` and ``2.0`` alike, as FfDL's manifests have all of them."""

    least: int
    most: int

    @property
    def accepted(self) -> str:
        return f"a whole number from {self.least} to {self.most}"

    def read(self, node: Node, path: str, findings: Findings) -> Any:
        match = re.fullmatch(r"\+?([0-9]{1,12})(?:\.0{1,6})?", node.text.strip()) if isinstance(node, Scalar) else None
        if not match or not self.least <= int(match[1]) <= self.most:
            return findings.expected(path, node, self.accepted)
        return int(match[1])

    def schema(self) -> Json:
        return {"type": ["integer", "string"], "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True)
class Number:
    """A number above 0."""

    most: float

    @property
    def accepted(self) -> str:
        return f"a number above 0 and up to {self.most:g}"

    def read(self, node: Node, path: str, findings: Findings) -> Any:
        match = re.fullmatch(r"\+?(?:[0-9]{1,12}\.?[0-9]{0,6}|\.[0-9]{1,6})", _text(node))
        if not match or not 0 < float(match[0]) <= self.most:
            return findings.expected(path, node, self.accepted)
        return float(match[0])

    def schema(self) -> Json:
        return {"type": ["number", "string"], "exclusiveMinimum": 0, "maximum": self.most}


_UNITS = {"mb": 10**6, "mib": 2**20, "gb": 10**9, "gib": 2**30, "tb": 10**12, "tib": 2**40}


@dataclass(frozen=True)
class Size:
    """An amount of memory or storage, in bytes once it is read. A bare number is in MB, as FfDL had it."""

    least: int = 2**20
    most: int = 2**50
    accepted: str = "a size such as 512MiB or 1.5Gb (units: mb, mib, gb, gib, tb, tib)"

    def read(self, node: Node, path: str, findings: Findings) -> Any:
        match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([A-Za-z]*)", _text(node))
        if not match or (match[2] and match[2].lower() not in _UNITS):
            return findings.expected(path, node, self.accepted, hint=self._hint(match))
        size = round(float(match[1]) * _UNITS[match[2].lower() or "mb"])
        if not self.least <= size <= self.most:
            return findings.expected(path, node, "a size from 1MiB to 1024TiB")
        return size

    @staticmethod
    def _hint(match: re.Match[str] | None) -> str:
        unit = match[2].lower() + "b" if match else ""
        return f": did you mean {match[1]}{match[2]}B?" if match and unit in _UNITS else ""

    def schema(self) -> Json:
        return {"type": ["string", "number"], "pattern": r"^[0-9.]+\s*([mMgGtT][iI]?[bB])?$"}


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd])\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Duration:
    """A span of time, in seconds once it is read: ``90s``, ``1h30m``, ``2d``; a bare number is seconds."""

    least: float
    most: float
    accepted: str = "a duration such as 90s, 5m, 1h30m or 2d"

    def read(self, node: Node, path: str, findings: Findings) -> Any:
        text = _text(node)[:64]
        parts = _DURATION.findall(text)
        if re.fullmatch(r"[0-9]{1,12}(?:\.[0-9]+)?", text):
            seconds = float(text)
        elif parts and not _DURATION.sub("", text):
            seconds = sum(float(number) * _SECONDS[unit.lower()] for number, unit in parts)
        else:
            return findings.expected(path, node, self.accepted)
        if not self.least <= seconds <= self.most:
            return findings.expected(path, node, f"a duration from {self.least:g} s to {self.most / 86400:g} days")
        return seconds

    def schema(self) -> Json:
        return {"type": ["string", "number"], "pattern": r"^\s*([0-9.]+\s*[smhdSMHD]?\s*)+$"}


class Choice:
    """One of a few words, in any case; ``synonyms`` maps other words to them."""

    def __init__(self, *words: str, synonyms: MappingType[str, str] | None = None) -> None:
        self.words = words
        self._all = {word.lower(): word for word in words} | dict(synonyms or {})

    @property
    def accepted(self) -> str:
        return one_of(self.words)

    def read(self, node: Node, path: str, findings: Findings) -> Any:
        text = node.text.strip() if isinstance(node, Scalar) else ""
        word = self._all.get(text.lower())
        if word is None:
            return findings.expected(path, node, self.accepted, hint=did_you_mean(text, tuple(self._all)))
        return word

    def schema(self) -> Json:
        return {"enum": sorted({*self.words, *self._all})}


@dataclass(frozen=True)
class Flag:
    """A truth value, in any of YAML's spellings."""

    accepted: str = "true or false"

    def read(self, node: Node, path: str, findings: Findings) -> Any:
        text = _text(node).lower()
        if text in ("true", "yes", "on"):
            return True
        if text in ("false", "no", "off"):
            return False
        return findings.expected(path, node, self.accepted)

    def schema(self) -> Json:
        return {"enum": [True, False, "true", "false", "yes", "no", "on", "off"]}


@dataclass(frozen=True)
class Field:
    """A key of a :class:`Section`."""

    kind: Kind
    doc: str = ""
    required: bool = False
    null_counts: bool = False
    """A plain ``null`` is a value of the kind, not an absent one."""


class Section:
    """A mapping with known keys; becomes a dict of those that are there and valid.

    Args:
        alone: the key whose value may stand in place of the whole mapping.
    """

    def __init__(
        self, fields: MappingType[str, Field], *, accepted: str = "", sensitive: bool = False, alone: str = ""
    ) -> None:
        self.fields = fields
        self.sensitive = sensitive
        self.alone = alone
        self.accepted = accepted or "a mapping with " + ", ".join(fields)

    def read(self, node: Node, path: str, findings: Findings) -> Any:
        if self.alone and isinstance(node, Scalar):
            value = self.fields[self.alone].kind.read(node, path, findings)
            return value if value is INVALID else {self.alone: value}
        if not isinstance(node, Mapping):
            return findings.expected(path, node, self.accepted, sensitive=self.sensitive)
        values: dict[str, Any] = {}
        for key, value in unique_entries(node, path, findings, self.sensitive):
            name = key.text
            known = self.fields.get(name)
            if known is None:
                self._unknown(key, path, findings)
                continue
            below = join(path, name)
            findings.nodes[below] = value
            if isinstance(value, Scalar) and (value.is_null or not value.text.strip()) and not known.null_counts:
                continue  # nothing, null and '' are no value
            read = known.kind.read(value, below, findings)
            if read is not INVALID:
                values[name] = read
        for name, known in self.fields.items():
            below = join(path, name)
            if known.required and name not in values and not findings.has(below):
                findings.add(below, f"missing: expected {known.kind.accepted}", accepted=known.kind.accepted)
        return values

    def _unknown(self, key: Scalar, path: str, findings: Findings) -> None:
        name = key.text
        # A search for similar keys takes time, and nobody reads a thousand hints.
        hint = did_you_mean(name, tuple(self.fields)) if len(findings.problems) < MOST_PROBLEMS else ""
        accepted = one_of(self.fields)
        if self.sensitive and not hint:
            # `{password: half,otherhalf}` makes a key of the other half.
            findings.add(path, f"an unknown key (not shown): accepted is {accepted}", node=key, accepted=accepted)
        else:
            findings.add(
                join(path, name[:80]),
                f"unknown key {name[:80]!r}{hint or ': accepted is ' + accepted}",
                node=key,
                found=name[:80],
                accepted=accepted,
            )

    def schema(self) -> Json:
        mapping = {
            "type": "object",
            "additionalProperties": False,
            "required": [name for name, known in self.fields.items() if known.required],
            "properties": {
                name: known.kind.schema() | ({"description": known.doc} if known.doc else {})
                for name, known in self.fields.items()
            },
        }
        return {"anyOf": [self.fields[self.alone].kind.schema(), mapping]} if self.alone else mapping


@dataclass(frozen=True)
class ListOf:
    """A list of one kind; one alone needs no list where ``single`` is set."""

    item: Kind
    accepted: str
    most: int
    single: bool = False

    def read(self, node: Node, path: str, findings: Findings) -> Any:
        if self.single and not isinstance(node, Sequence):
            value = self.item.read(node, path, findings)
            return value if value is INVALID else [value]
        if not isinstance(node, Sequence):
            return findings.expected(path, node, self.accepted)
        if len(node.items) > self.most:
            return findings.expected(path, node, f"at most {self.most} entries", hint=f" of {len(node.items)}")
        values = []
        for index, item in enumerate(node.items):
            below = f"{path}[{index}]"
            findings.nodes[below] = item
            values.append(self.item.read(item, below, findings))
        # An invalid entry keeps its place, so that problems of later entries name the right index.
        return values

    def schema(self) -> Json:
        item = self.item.schema()
        many = {"type": "array", "items": item, "maxItems": self.most}
        return {"anyOf": [many, item]} if self.single else many


@dataclass(frozen=True)
class MapOf:
    """A mapping whose keys the user chooses."""

    value: Kind
    accepted: str
    most: int
    key: str = ".{1,63}"
    key_accepted: str = "a key of 1 to 63 characters"
    check_key: Callable[[str], str | None] | None = None

    def read(self, node: Node, path: str, findings: Findings) -> Any:
        if not isinstance(node, Mapping):
            return findings.expected(path, node, self.accepted)
        if len(node.entries) > self.most:
            return findings.expected(path, node, f"at most {self.most} entries", hint=f" of {len(node.entries)}")
        values = {}
        for key, value in unique_entries(node, path, findings):
            name = key.text
            below = join(path, name[:80])
            findings.nodes[below] = value
            if not re.fullmatch(self.key, name):
                message = f"expected {self.key_accepted}, found {name[:80]!r}"
                findings.add(below, message, node=key, found=name[:80], accepted=self.key_accepted)
                continue
            wrong = self.check_key(name) if self.check_key else None
            if wrong:
                findings.add(below, wrong, node=key, found=name)
                continue
            read = self.value.read(value, below, findings)
            if read is not INVALID:
                values[name] = read
        return values

    def schema(self) -> Json:
        return {
            "type": "object",
            "additionalProperties": self.value.schema(),
            "propertyNames": {"pattern": f"^(?:{self.key})$"},
            "maxProperties": self.most,
        }


def join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def unique_entries(node: Mapping, path: str, findings: Findings, sensitive: bool = False) -> list[tuple[Scalar, Node]]:
    """The entries of a mapping, each key once; a key that stands there twice is a problem."""
    first: dict[str, tuple[Scalar, Node]] = {}
    for key, value in node.entries:
        if key.text not in first:
            first[key.text] = (key, value)
            continue
        name = key.text[:80]
        shown = "a key" if sensitive else f"the key {name!r}"
        message = f"{shown} stands here a second time, first on line {first[key.text][0].line}"
        findings.add(path if sensitive else join(path, name), message, node=key)
    return list(first.values())


def _text(node: Node) -> str:
    return node.text.strip() if isinstance(node, Scalar) and not node.is_null else ""
