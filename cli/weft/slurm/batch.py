"""The job that directives describe."""

from __future__ import annotations

import math
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.errors import InvalidScript
from weft.slurm.dependencies import predecessors
from weft.slurm.directives import EFFECTS, REASONS, REFUSALS, Directive
from weft.slurm.times import seconds, span
from weft.words import count

_MOST_JOBS = 1000
_MIB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}


@dataclass
class Batch:
    """A job, as directives describe it.

    Attributes:
        keys: keys of the manifest, except the framework.
        env: the manifest's ``env``.
        array: the indices of an array; empty: the job is none.
        at_once: the most jobs of the array that may run at once; 0: no limit.
        notes: what directives did not do, for the user.
        folder: the folder of the code; None: the current one.
        parsable: whether only the id is to be printed.
    """

    keys: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    array: list[int] = field(default_factory=list)
    at_once: int = 0
    notes: list[str] = field(default_factory=list)
    folder: Path | None = None
    parsable: bool = False

    @property
    def summary(self) -> str:
        """The sizes, in words."""
        sizes = [count(self.keys.get("cpus", 1), "CPU")]
        if "gpus" in self.keys:
            sizes.append(count(self.keys["gpus"], "GPU"))
        sizes.append(self.keys.get("memory", "2 GiB (Weft's default; --mem changes it)"))
        tasks = count(int(self.env.get("SLURM_NTASKS_PER_NODE", 1)), "task")
        end = f"; ends after {self.keys['max_runtime']}" if "max_runtime" in self.keys else ""
        return f"{count(self.keys['learners'], 'learner')}, each with {', '.join(sizes)} and {tasks}{end}"

    def manifests(self, made: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The manifests of all jobs. ``made``: the manifest of the script."""
        if not self.array:
            return [dict(made)]
        number = str(10_000_000 + secrets.randbelow(90_000_000))
        steps = {after - before for before, after in zip(self.array, self.array[1:], strict=False)}
        common = {
            "SLURM_JOB_NAME": str(made["name"]),
            "SLURM_ARRAY_JOB_ID": number,
            "SLURM_ARRAY_TASK_COUNT": str(len(self.array)),
            "SLURM_ARRAY_TASK_MIN": str(min(self.array)),
            "SLURM_ARRAY_TASK_MAX": str(max(self.array)),
            "SLURM_ARRAY_TASK_STEP": str(steps.pop() if len(steps) == 1 else 1),
        }
        return [
            {
                **made,
                "name": f"{str(made['name'])[:55]}-{index}",
                "labels": {"array": number},
                "env": self.env | common | {"SLURM_ARRAY_TASK_ID": str(index)},
            }
            for index in self.array
        ]


def make_batch(script: Sequence[Directive], command_line: Sequence[Directive], log: str = "weft logs JOB") -> Batch:
    """The job of a script's directives. Those of the command line win.

    Args:
        log: the command that prints the job's log.

    Raises:
        InvalidScript: values are wrong, or directives contradict each other; the text names all of them.
    """
    reader = _Reader({found.name: found for found in (*script, *command_line)})
    batch = reader.read()
    batch.notes = [*reader.notes, *batch.notes]
    if reader.problems:
        raise InvalidScript("\n".join(reader.problems))
    for stream in ("output", "error"):
        if stream in reader.found:
            batch.notes.append(f"{reader.found[stream]}: Weft keeps the output, and `{log}` prints it")
    return batch


class _Reader:
    def __init__(self, found: Mapping[str, Directive]) -> None:
        self.found = found
        self.problems: list[str] = []
        self.notes: list[str] = []

    def read(self) -> Batch:
        for name, directive in self.found.items():
            if name in REFUSALS:
                self.problems.append(f"{directive}: {REFUSALS[name]}")
            elif name not in EFFECTS:
                reason = f": {REASONS[name]}" if name in REASONS else ""
                self.notes.append(f"{directive} has no effect on Weft{reason}")
        batch = Batch()
        nodes, tasks, gpus = self._sizes(batch)
        cpus = self._cpus(tasks, gpus)
        if "cpus-per-task" in self.found:
            batch.env["SLURM_CPUS_PER_TASK"] = str(self._number("cpus-per-task"))
        if cpus:
            batch.keys["cpus"] = cpus
        memory = self._memory(cpus or 1, gpus)
        if memory:
            batch.keys["memory"] = f"{memory // 1024} GiB" if memory % 1024 == 0 else f"{memory} MiB"
        batch.keys = {"learners": nodes, **batch.keys}
        for name, key in (("job-name", "name"), ("comment", "description")):
            if name in self.found:
                batch.keys[key] = self.found[name].value
        if "time" in self.found and (seconds := self._time()):
            batch.keys["max_runtime"] = span(seconds)
        if "dependency" in self.found:
            batch.keys["after"] = self._dependency()
        if "array" in self.found:
            batch.array, batch.at_once = self._array()
        if "export" in self.found:
            self._export(batch)
        if "chdir" in self.found:
            batch.folder = Path(self.found["chdir"].value)
        batch.parsable = "parsable" in self.found
        if batch.env:
            batch.keys["env"] = batch.env
        return batch

    def _dependency(self) -> list[dict[str, str]]:
        try:
            return predecessors(self.found["dependency"].value)
        except ValueError as error:
            self._wrong("dependency", str(error))
            return []

    def _sizes(self, batch: Batch) -> tuple[int, int | None, int]:
        """Nodes, tasks of each (None: nothing says so) and GPUs of each."""
        nodes, total = self._number("nodes"), self._number("ntasks")
        each = self._number("ntasks-per-node")
        gpus_each = self._gpus("gpus-per-task", batch)
        if nodes is None:
            nodes = -(-total // each) if total and each else 1
        gpus = self._gpus_per_node(nodes, batch)
        per_gpu = self._number("ntasks-per-gpu")
        if each is None and per_gpu and gpus:
            each = per_gpu * gpus
        if total is not None and each is None:
            if total % nodes:
                self._wrong("ntasks", f"expected a multiple of the number of nodes, {nodes}")
            each = max(1, total // nodes)
        elif total is not None and each is not None and total != nodes * each:
            self._wrong("ntasks", f"expected {nodes * each}, for {nodes} nodes with {each} tasks each")
        if gpus_each:
            each = each or (gpus // gpus_each if gpus else 1)
            if gpus and gpus != gpus_each * each:
                self._wrong("gpus-per-task", f"{each} tasks with {gpus_each} GPUs do not make {gpus} GPUs of a node")
            gpus = gpus_each * each
            batch.env["SLURM_GPUS_PER_TASK"] = str(gpus_each)
        if each:
            batch.env["SLURM_NTASKS_PER_NODE"] = str(each)
        if gpus:
            batch.keys["gpus"] = gpus
            batch.env["SLURM_GPUS_PER_NODE"] = str(gpus)
        return nodes, each, gpus

    def _gpus_per_node(self, nodes: int, batch: Batch) -> int:
        found = {}
        if (number := self._gpus("gpus-per-node", batch)) is not None:
            found["gpus-per-node"] = number
        if (number := self._gres(batch)) is not None:
            found["gres"] = number
        if (number := self._gpus("gpus", batch)) is not None:
            if number % nodes:
                self._wrong("gpus", f"expected a multiple of the number of nodes, {nodes}")
            found["gpus"] = number // nodes
        if len(set(found.values())) > 1:
            given = ", ".join(str(self.found[name]) for name in found)
            self.problems.append(f"{given} contradict each other: leave out all but one")
        return max(found.values(), default=0)

    def _gpus(self, name: str, batch: Batch) -> int | None:
        """``4``, ``a100:4`` or ``a100``."""
        if name not in self.found:
            return None
        return self._typed(name, self.found[name].value, batch)

    def _gres(self, batch: Batch) -> int | None:
        number = None
        for entry in filter(None, self.found["gres"].value.split(",") if "gres" in self.found else ()):
            kind, colon, rest = entry.removeprefix("gres/").partition(":")
            if kind == "gpu":
                number = (number or 0) + (self._typed("gres", rest, batch) if colon else 1)
            elif entry != "none":
                self.notes.append(f"{self.found['gres']}: {entry} has no effect on Weft")
        return number

    def _typed(self, name: str, value: str, batch: Batch) -> int:
        match = re.fullmatch(r"(?:([A-Za-z][\w.-]*)|([A-Za-z][\w.-]*)[:=](\d+)|(\d+))(\(.*\))?", value)
        if not match:
            self._wrong(name, "expected a number of GPUs such as 4 or a100:4")
            return 1
        if kind := match[1] or match[2]:
            batch.keys["gpu_type"] = kind
        return int(match[3] or match[4] or 1)

    def _cpus(self, tasks: int | None, gpus: int) -> int | None:
        each, per_gpu = self._number("cpus-per-task"), self._number("cpus-per-gpu")
        if each and per_gpu:
            self._wrong("cpus-per-gpu", f"{self.found['cpus-per-task']} is given as well: leave out either of the two")
        if per_gpu:
            if not gpus:
                self._wrong("cpus-per-gpu", "the job has no GPUs")
            return per_gpu * gpus
        return (each or 1) * (tasks or 1) if each or tasks else None

    def _memory(self, cpus: int, gpus: int) -> int | None:
        """In MiB, of a node."""
        factors = {"mem": 1, "mem-per-cpu": cpus, "mem-per-gpu": gpus}
        given = [name for name in factors if name in self.found]
        if len(given) > 1:
            self._wrong(given[1], f"{self.found[given[0]]} is given as well: leave out either of the two")
        if not given:
            return None
        name = given[0]
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", self.found[name].value, re.IGNORECASE)
        if not match:
            self._wrong(name, "expected a size such as 16G (units: K, M, G, T)")
            return None
        if float(match[1]) == 0:
            self._wrong(name, "Weft gives a learner no whole node: give a size, such as --mem=64G on the command line")
        if factors[name] == 0:
            self._wrong(name, "the job has no GPUs")
        return math.ceil(float(match[1]) * _MIB[match[2].upper() or "M"] * factors[name])

    def _time(self) -> int | None:
        """In seconds; None: no limit."""
        try:
            return seconds(self.found["time"].value)
        except ValueError as error:
            self._wrong("time", str(error))
            return None

    def _array(self) -> tuple[list[int], int]:
        """The indices, and the most jobs that may run at once; 0: no limit."""
        value, percent, most = self.found["array"].value.partition("%")
        indices: list[int] = []
        for part in value.split(","):
            match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", part.strip())
            if not match or int(match[2] or match[1]) < int(match[1]) or match[3] == "0":
                self._wrong("array", "expected indices such as 0-7, 1,3,5, 0-15:4 or 0-7%2")
                return [], 0
            indices += range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1))[: _MOST_JOBS + 1]
        if len(indices) > _MOST_JOBS:
            self._wrong("array", f"expected at most {_MOST_JOBS:,} indices")
        indices = list(dict.fromkeys(indices))
        if percent and not re.fullmatch(r"[1-9]\d{0,8}", most):
            self._wrong("array", "expected a number from 1 after %")
            return [], 0
        return indices, int(most or 0)

    def _export(self, batch: Batch) -> None:
        for word in filter(None, self.found["export"].value.split(",")):
            name, equals, value = word.partition("=")
            if equals:
                batch.env[name] = value
            elif name == "ALL":
                self.notes.append(
                    f"{self.found['export']}: learners do not have the variables of this shell; --export=NAME sends one"
                )
            elif name in os.environ:
                batch.env[name] = os.environ[name]
            elif name not in ("NONE", "NIL"):
                self._wrong("export", f"the variable {name} is not set here")

    def _number(self, name: str) -> int | None:
        if name not in self.found:
            return None
        match = re.fullmatch(r"([1-9]\d{0,5})(?:-\1)?", self.found[name].value)
        if not match:
            self._wrong(name, "expected a whole number from 1")
            return 1
        return int(match[1])

    def _wrong(self, name: str, words: str) -> None:
        self.problems.append(f"{self.found[name]}: {words}")
