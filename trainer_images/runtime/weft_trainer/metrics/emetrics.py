"""FfDL's ``emetrics_file``: programs that write ``evaluation-metrics.txt`` themselves, a JSON object a line:

{"meta": {"time": 1769847309018}, "grouplabel": "test", "etimes": {"iteration": {"type": 2, "value": "100"}},
 "values": {"accuracy": {"type": 3, "value": "0.91"}}}
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft_trainer.growing import Found, LineFile
from weft_trainer.metrics.logged import moment
from weft_trainer.metrics.records import Record, Value
from weft_trainer.metrics.shipper import MetricShipper
from weft_trainer.metrics.values import convert, types_of_texts

NAME = "evaluation-metrics.txt"
_READ = 1 << 20
_TYPES = {0: "STRING", 1: "JSONSTRING", 2: "INT", 3: "FLOAT"}


class EmetricsFiles:
    """Follows every file of that name, and the file ``named``, which the manifest names.

    Args:
        say: writes a line into the job's log.
        folder: the job's, in which only ``named`` counts.
    """

    def __init__(
        self,
        shipper: MetricShipper,
        say: Callable[[str], None],
        named: Path | None = None,
        folder: Path | None = None,
    ) -> None:
        self._shipper = shipper
        self._say = say
        self._named = named
        self._folder = folder
        self._files: dict[Path, LineFile] = {}
        self._told = False

    def read(self, found: Sequence[Found]) -> bool:
        for entry in found:
            if entry.path == self._named or (entry.path.name == NAME and entry.root != self._folder):
                self._files.setdefault(entry.path, LineFile(entry.path))
        for file in self._files.values():
            self._read(file)
        return any(file.waiting for file in self._files.values())

    def _read(self, file: LineFile) -> None:
        records = []
        for line in file.read(_READ)[0]:
            if not line.strip():
                continue
            try:
                records.append(parse(line))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                self._tell(file.path, line, error)
        self._shipper.write(records)

    def _tell(self, path: Path, line: bytes, error: Exception) -> None:
        if not self._told:
            self._told = True
            words = line[:100].decode(errors="replace")
            kind = f"{type(error).__name__}: {error}"
            self._say(f"weft: metrics: a line of {path.name} is no evaluation metrics ({kind}): {words}")


def parse(line: bytes) -> Record:
    """Raises: ValueError, KeyError, TypeError, AttributeError: the line is not in FfDL's format."""
    data = json.loads(line)
    values = _values(data["values"])
    if not values:
        raise ValueError("no values")
    stamp = (data.get("meta") or {}).get("time")
    when = moment(stamp) if stamp else int(time.time() * 1000)
    etimes = data.get("etimes")
    types = types_of_texts(_kinds(etimes) | _kinds(data["values"]))
    return Record(when, values, str(data.get("grouplabel") or ""), _values(etimes), types=types)


def _values(written: Mapping[str, Any] | None) -> dict[str, Value]:
    kinds = _kinds(written)
    found = {}
    for name, value in (written or {}).items():
        typed = isinstance(value, Mapping)
        kind = kinds.get(str(name)) or ("FLOAT" if isinstance(value, (int, float)) else "STRING")
        found[str(name)] = convert(value["value"] if typed else value, kind)
    return {name: value for name, value in found.items() if value is not None}


def _kinds(written: Mapping[str, Any] | None) -> dict[str, str]:
    """The types that are given with the values, by name."""
    given = {str(name): value.get("type", 0) for name, value in (written or {}).items() if isinstance(value, Mapping)}
    return {name: _TYPES.get(kind, str(kind)) for name, kind in given.items()}
