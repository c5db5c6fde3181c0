"""MLflow's filters and orders: ``metrics.loss < 0.3 and params.`lr` = '0.1'``, ``metrics.loss DESC``."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import re2

from weft_api.http.paging import decode, encode
from weft_api.mlflow.values import Arguments, refused

T = TypeVar("T")

_KINDS = {
    "metric": "metrics",
    "metrics": "metrics",
    "param": "params",
    "params": "params",
    "parameter": "params",
    "parameters": "params",
    "tag": "tags",
    "tags": "tags",
    "attr": "attributes",
    "attribute": "attributes",
    "attributes": "attributes",
    "run": "attributes",
    "dataset": "datasets",
    "datasets": "datasets",
}
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<quoted>`[^`]*`)"""
    r"""|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<sign><=|>=|!=|=|<|>)"""
    r"""|(?P<word>[A-Za-z_][\w./:-]*)|(?P<mark>[(),]))"""
)
_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}
_FORM = "expected such as: metrics.loss < 0.3 and params.lr = '0.1' and tags.team LIKE 'vis%'"
_MOST_CONDITIONS = 50
_MOST_RESULTS = 50_000


class Field(NamedTuple):
    kind: str
    """metrics, params, tags, attributes or datasets."""
    name: str


class Order(NamedTuple):
    by: Field
    descending: bool


@dataclass(frozen=True)
class Condition:
    of: Field
    sign: str
    value: Any

    def holds(self, found: Any) -> bool:
        if self.sign in ("IS NULL", "IS NOT NULL"):
            return (found is None) == (self.sign == "IS NULL")
        if found is None:
            return False
        if isinstance(found, list):  # of several data sets, one
            return any(self.holds(value) for value in found)
        if self.sign in ("IN", "NOT IN"):
            return (found in self.value) == (self.sign == "IN")
        if self.sign in ("LIKE", "ILIKE"):
            return isinstance(found, str) and self.value.fullmatch(found) is not None
        if isinstance(found, str) != isinstance(self.value, str):
            raise refused(
                f"{self.of.kind}.{self.of.name} can't be compared with {self.value!r}: quote texts, and no numbers"
            )
        return bool(_COMPARED[self.sign](found, self.value))


@dataclass(frozen=True)
class Filter:
    conditions: list[Condition] = field(default_factory=list)

    def holds(self, get: Callable[[Field], Any]) -> bool:
        return all(condition.holds(get(condition.of)) for condition in self.conditions)

    @property
    def fields(self) -> set[Field]:
        return {condition.of for condition in self.conditions}


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        at = 0
        text = text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.wrong(text[at : at + 20])
            self._tokens.append((found.lastgroup or "", found[found.lastgroup or 0]))
            at = found.end()
        self._at = 0

    def wrong(self, found: str) -> Exception:
        return refused(f"Invalid clause(s) in filter string: {found!r} in {self._text[:200]!r}; {_FORM}")

    @property
    def done(self) -> bool:
        return self._at >= len(self._tokens)

    def next(self, *kinds: str) -> tuple[str, str]:
        if self.done:
            raise self.wrong("(the end)")
        kind, token = self._tokens[self._at]
        if kinds and kind not in kinds:
            raise self.wrong(token)
        self._at += 1
        return kind, token

    def took(self, word: str) -> bool:
        if not self.done and self._tokens[self._at][1].upper() == word:
            self._at += 1
            return True
        return False

    def field(self) -> Field:
        kind, token = self.next("word", "quoted")
        if kind == "quoted":
            return Field("attributes", _unquoted(token))
        first, dot, rest = token.partition(".")
        if not dot:
            return Field("attributes", token)
        known = _KINDS.get(first)
        if known is None:
            raise refused(f"Invalid entity type '{first}'. Valid values are {sorted(set(_KINDS.values()))}")
        if not rest:
            rest = _unquoted(self.next("quoted", "text")[1])
        return Field(known, rest)

    def condition(self) -> Condition:
        of = self.field()
        if self.took("IS"):
            sign = "IS NOT NULL" if self.took("NOT") else "IS NULL"
            if not self.took("NULL"):
                raise self.wrong("IS")
            return Condition(of, sign, None)
        kind, token = self.next("sign", "word")
        sign = token.upper()
        if sign == "NOT" and self.took("IN"):
            sign = "NOT IN"
        if sign in ("IN", "NOT IN"):
            return Condition(of, sign, self._several())
        if kind != "sign" and sign not in ("LIKE", "ILIKE"):
            raise self.wrong(token)
        value = self._value()
        if sign not in ("LIKE", "ILIKE"):
            return Condition(of, sign, value)
        if not isinstance(value, str):
            raise self.wrong(str(value))
        return Condition(of, sign, _pattern(value, "is" if sign == "ILIKE" else "s"))

    def _value(self) -> str | float:
        kind, token = self.next("text", "number", "quoted")
        return float(token) if kind == "number" else _unquoted(token)

    def _several(self) -> list[str | float]:
        if self.next("mark")[1] != "(":
            raise self.wrong("IN")
        values = [self._value()]
        while (mark := self.next("mark")[1]) == ",":
            if self.took(")"):
                return values
            values.append(self._value())
        if mark != ")":
            raise self.wrong(mark)
        return values


def _unquoted(token: str) -> str:
    return re.sub(r"\\(.)", r"\1", token[1:-1]) if "\\" in token else token[1:-1]


def _pattern(like: str, flags: str) -> Any:
    # RE2: its time is linear, whatever a user's pattern.
    parts = (".*" if part == "%" else "." if part == "_" else re2.escape(part) for part in re.split("([%_])", like))
    return re2.compile(f"(?{flags})" + "".join(parts))


def parse_filter(text: str) -> Filter:
    """Raises Problem."""
    if not text.strip():
        return Filter()
    reader = _Reader(text)
    conditions = [reader.condition()]
    while not reader.done:
        if not reader.took("AND") or len(conditions) == _MOST_CONDITIONS:
            raise reader.wrong(reader.next()[1])
        conditions.append(reader.condition())
    return Filter(conditions)


def parse_orders(texts: Sequence[str]) -> list[Order]:
    """Raises Problem."""
    orders = []
    for text in texts:
        reader = _Reader(text[:1000])
        by = reader.field()
        descending = reader.took("DESC")
        if not descending:
            reader.took("ASC")
        if not reader.done:
            raise refused(f"Invalid order_by clause {text[:100]!r}; expected such as: metrics.loss DESC")
        orders.append(Order(by, descending))
    return orders


def ordered(items: Sequence[T], get: Callable[[T, Field], Any], orders: Sequence[Order]) -> list[T]:
    """Items without the value come last."""
    found = list(items)
    for order in reversed(orders):
        values = [(item, get(item, order.by)) for item in found]
        have = [pair for pair in values if not _missing(pair[1])]
        have.sort(key=lambda pair: (isinstance(pair[1], str), pair[1]), reverse=order.descending)
        found = [item for item, _ in have] + [item for item, value in values if _missing(value)]
    return found


def _missing(value: Any) -> bool:
    return value is None or isinstance(value, list) or (isinstance(value, float) and math.isnan(value))


def page(
    items: Sequence[T],
    get: Callable[[T, Field], Any],
    wanted: Filter,
    orders: Sequence[Order],
    given: Arguments,
    default: int,
) -> tuple[list[T], str | None]:
    """A page of the items that match, and the token of the next page."""
    chosen = [item for item in items if wanted.holds(lambda of, item=item: get(item, of))]  # type: ignore[misc]
    return cut(ordered(chosen, get, orders), given, default)


def cut(items: Sequence[T], given: Arguments, default: int) -> tuple[list[T], str | None]:
    """A page of a list, and the token of the next page."""
    most = given.integer("max_results", default, least=1, most=_MOST_RESULTS)
    token = given.text_or_none("page_token", 200)
    start = decode(token, 1)[0] if token else "0"
    if not start.isdigit():
        raise refused("Invalid page token, could not base64-decode")
    first = int(start[:18])
    behind = first + most
    return list(items[first:behind]), encode(str(behind)) if behind < len(items) else None
