"""The fields of ``sweep`` and ``parameters``, and the kinds of values that only these have."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from weft_core.manifest.findings import INVALID, Findings
from weft_core.manifest.kinds import Choice, Duration, Field, Flag, Json, MapOf, Section, Text, Whole
from weft_core.manifest.sweep_models import SEARCHES, Value
from weft_core.manifest.tree import Mapping, Node, Scalar, Sequence

_NAME = r"[A-Za-z][A-Za-z0-9_-]{0,62}"
_NAME_ACCEPTED = "a name of letters, digits, '_' and '-' that begins with a letter"
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")
_MOST_PARAMETERS = 64
_MOST_VALUES = 1000
_LARGEST = 2**53
_RANGES = ("uniform", "log", "int", "int_log")


@dataclass(frozen=True)
class AnyValue:
    """A number, a truth value or a text. Quotes make a text of what looks like a number."""

    accepted: str = "a number, true, false or a text of at most 1,000 characters"

    def read(self, node: Node, path: str, findings: Findings) -> Any:
        if not isinstance(node, Scalar) or node.is_null or len(node.text) > 1000 or not node.text.isprintable():
            return findings.expected(path, node, self.accepted)
        return _value(node)

    def schema(self) -> Json:
        return {"type": ["number", "boolean", "string"]}


@dataclass(frozen=True)
class Real:
    """A finite number."""

    accepted: str = "a number"

    def read(self, node: Node, path: str, findings: Findings) -> Any:
        number = _number(node)
        return findings.expected(path, node, self.accepted) if number is None else number

    def schema(self) -> Json:
        return {"type": ["number", "string"]}


@dataclass(frozen=True)
class Parameter:
    """A list of values, or a range."""

    accepted: str = (
        "a list of values such as [32, 64], or a range such as {uniform: [0, 1]}, {log: [1e-4, 1e-1]}, {int: [1, 9]} "
        "or {int_log: [1, 1024]}"
    )

    def read(self, node: Node, path: str, findings: Findings) -> Any:
        if isinstance(node, Sequence):
            values = _read_values(node, path, findings)
            return INVALID if values is INVALID else {"kind": "values", "values": values}
        if not isinstance(node, Mapping):
            return findings.expected(path, node, self.accepted)
        read = _DETAILED.read(node, path, findings)
        kinds = [name for name in ("values", *_RANGES) if node.get(name) is not None]
        if len(kinds) != 1:
            found = " and ".join(kinds) or "none of values, uniform, log, int and int_log"
            findings.add(path, f"expected {self.accepted}, found {found}", node=node, accepted=self.accepted)
            return INVALID
        (kind,) = kinds
        if kind not in read:
            return INVALID
        told: dict[str, Any] = {"kind": kind} | ({"set": read["set"]} if "set" in read else {})
        if kind == "values":
            told["values"] = read["values"]
        else:
            told["low"], told["high"] = read[kind]
        if "step" in read:
            if kind not in ("uniform", "int"):
                findings.add(f"{path}.step", f"{kind} has no step", accepted="step with uniform or int")
                return INVALID
            told["step"] = read["step"]
        return told

    def schema(self) -> Json:
        return {"anyOf": [_VALUES.schema(), _DETAILED.schema()]}

    @property
    def section(self) -> Section:
        """The keys of the long form."""
        return _DETAILED


@dataclass(frozen=True)
class _Values:
    accepted: str = "a list of values such as [32, 64]"

    def read(self, node: Node, path: str, findings: Findings) -> Any:
        return (
            _read_values(node, path, findings)
            if isinstance(node, Sequence)
            else findings.expected(path, node, self.accepted)
        )

    def schema(self) -> Json:
        return {"type": "array", "items": AnyValue().schema(), "minItems": 1, "maxItems": _MOST_VALUES}


@dataclass(frozen=True)
class _Range:
    """``[low, high]``."""

    whole: bool = False
    positive: bool = False

    @property
    def accepted(self) -> str:
        what = "whole numbers" if self.whole else "numbers"
        return f"[LOW, HIGH], two {what}{' above 0' if self.positive else ''}, LOW below HIGH"

    def read(self, node: Node, path: str, findings: Findings) -> Any:
        items = node.items if isinstance(node, Sequence) else []
        numbers = [_number(item) for item in items]
        if len(numbers) != 2 or None in numbers:
            return findings.expected(path, node, self.accepted)
        low, high = (number for number in numbers if number is not None)
        fits = low < high and (low > 0 or not self.positive) and max(abs(low), abs(high)) <= _LARGEST
        if not fits or (self.whole and not (low.is_integer() and high.is_integer())):
            findings.add(
                path, f"expected {self.accepted}, found [{low:g}, {high:g}]", node=node, accepted=self.accepted
            )
            return INVALID
        return low, high

    def schema(self) -> Json:
        return {"type": "array", "items": Real().schema(), "minItems": 2, "maxItems": 2}


def _read_values(node: Sequence, path: str, findings: Findings) -> Any:
    if not 1 <= len(node.items) <= _MOST_VALUES:
        return findings.expected(path, node, f"1 to {_MOST_VALUES:,} values")
    values: list[Value] = []
    for index, item in enumerate(node.items):
        below = f"{path}[{index}]"
        findings.nodes[below] = item
        value = AnyValue().read(item, below, findings)
        if value is INVALID:
            return INVALID
        if any(type(value) is type(other) and value == other for other in values):
            findings.add(below, f"the value {value!r} stands here a second time", node=item, found=repr(value))
            return INVALID
        values.append(value)
    return values


def _value(node: Scalar) -> Value:
    text = node.text.strip()
    if not node.plain:
        return node.text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if re.fullmatch(r"[-+]?[0-9]{1,15}", text):
        return int(text)
    number = _number(node)
    return text if number is None else number


def _number(node: Node) -> float | None:
    text = node.text.strip() if isinstance(node, Scalar) else ""
    number = float(text) if len(text) <= 64 and _NUMBER.fullmatch(text) else math.nan
    return number if math.isfinite(number) else None


_VALUES = _Values()
_SET = Text(
    "env.NAME, learners, cpus, gpus, memory or profile",
    most=200,
    pattern=r"env\.[A-Za-z_][A-Za-z0-9_]{0,127}|learners|cpus|gpus|memory|profile",
)
_DETAILED = Section(
    {
        "values": Field(_VALUES, "The values to choose from."),
        "uniform": Field(_Range(), "A number from this range; each is as likely."),
        "log": Field(
            _Range(positive=True), "A number above 0 from this range; each power of ten is as likely as the next."
        ),
        "int": Field(_Range(whole=True), "A whole number from this range, its ends included."),
        "int_log": Field(_Range(whole=True, positive=True), "A whole number, as `log` chooses it."),
        "step": Field(Real(), "With `uniform` and `int`: the distance between two values, counted from the low end."),
        "set": Field(
            _SET,
            "The key of the manifest that gets the value, as with `--set`: " + _SET.accepted + ". `--vary` writes it.",
        ),
    },
    accepted=Parameter().accepted,
)

_RUNGS = Section(
    {
        "parameter": Field(
            Text(_NAME_ACCEPTED, most=63, pattern=_NAME),
            "The name of the parameter that tells the program how far to train in all, such as `epochs` for "
            "`${sweep.epochs}`. The program reaches it, stores a checkpoint, and ends.",
            required=True,
        ),
        "min": Field(Whole(1, 10**9), "The lowest rung ends here or above."),
        "max": Field(
            Whole(2, 10**9),
            "The last rung ends here. The others end at this number divided by `reduction`, again and again.",
            required=True,
        ),
        "reduction": Field(Whole(2, 100), "Of this many trials in a rung, the best one goes on to the next rung."),
        "sync": Field(
            Flag(),
            "Whether a rung waits for all of its trials before the best of them go on. The decisions then do not "
            "depend on which trial ends first, but machines may be idle meanwhile.",
        ),
        "every": Field(
            Whole(1, 10**9),
            "With `pbt`: a rung ends at each multiple of this number, and the last one at `max`. The other searches "
            "have `min`, `reduction` and `sync` instead.",
        ),
    },
    accepted="a mapping such as {parameter: epochs, max: 27}",
)

PARAMETERS = MapOf(AnyValue(), "a mapping of names to values", _MOST_PARAMETERS, key=_NAME, key_accepted=_NAME_ACCEPTED)
SWEEP = Section(
    {
        "parameters": Field(
            MapOf(
                Parameter(),
                "a mapping of names to lists of values and ranges",
                _MOST_PARAMETERS,
                key=_NAME,
                key_accepted=_NAME_ACCEPTED,
            ),
            "The parameters that are searched, and the values that each may have: a list, or a range.",
            required=True,
        ),
        "metric": Field(
            Text("the name of a metric such as val/accuracy", most=200, check=lambda text: _printable(text)),
            "The metric that says how good a trial is, by the name that lists of jobs show. The best value that the "
            "trial's first learner has reported counts.",
            required=True,
        ),
        "goal": Field(Choice("max", "min"), "Whether a large or a small value of the metric is good."),
        "trials": Field(
            Whole(1, 100_000),
            "How many trials the sweep makes. Without it, `grid` tries each combination once, and other searches make "
            "20. `asha` makes more if only more bring a trial to the last rung. `pbt` makes `population` trials for "
            "each rung, and accepts no other number.",
        ),
        "parallel": Field(Whole(1, 1000), "How many trials are under way at the same time."),
        "search": Field(
            Choice(*SEARCHES),
            "The method that chooses the parameters of a trial. `random`: chance. `grid`: each combination once. "
            "`tpe`: Optuna's tree-structured Parzen estimator, which learns from the trials before. `cmaes`: Optuna's "
            "CMA-ES, for ranges of numbers. `asha` and `hyperband`: chance, and only good trials run to their end "
            "(`rungs`). "
            "`pbt`: population based training, in which bad trials go on from the checkpoints of good trials. "
            "`manual`: a program of yours, through the API.",
        ),
        "rungs": Field(
            _RUNGS,
            "How far trials run before they are compared. `asha`, `hyperband` and `pbt` need it. With `hyperband`, "
            "some of the trials begin at a higher rung.",
        ),
        "population": Field(
            Whole(4, 1000),
            "With `pbt`: how many trials each rung has. Without it, 8, or `parallel` if that is more.",
        ),
        "stop": Field(
            Section(
                {
                    "value": Field(
                        Real(),
                        "As soon as a trial's metric is as good as this, the sweep ends. Other trials are halted.",
                    ),
                    "after": Field(Duration(1, 365 * 86400.0), "So long after its submission, no new trial begins."),
                    "failures": Field(Whole(1, 100_000), "So many failed trials in a row end the sweep as FAILED."),
                }
            ),
            "When the sweep ends before all of its trials have run.",
        ),
        "seed": Field(
            Whole(0, 2**31 - 1),
            "The beginning of all chance in the search: the same seed makes the same decisions from the same results.",
        ),
    }
)


def _printable(text: str) -> str | None:
    return None if text.isprintable() else "expected printable characters, found others"
