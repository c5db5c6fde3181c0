"""Batch scripts of Slurm's: their directives, and the manifest that they become."""

from __future__ import annotations

import difflib
import math
import os
import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.errors import InvalidScript, WeftError
from weft.words import count

_SHORT = {
    "J": "job-name",
    "N": "nodes",
    "n": "ntasks",
    "c": "cpus-per-task",
    "G": "gpus",
    "t": "time",
    "a": "array",
    "d": "dependency",
    "o": "output",
    "e": "error",
    "D": "chdir",
    "p": "partition",
    "A": "account",
    "q": "qos",
    "C": "constraint",
    "w": "nodelist",
    "x": "exclude",
    "L": "licenses",
    "M": "clusters",
    "m": "distribution",
    "B": "extra-node-info",
    "H": "hold",
    "b": "begin",
    "i": "input",
    "k": "no-kill",
    "s": "oversubscribe",
    "O": "overcommit",
    "S": "core-spec",
    "F": "nodefile",
    "v": "verbose",
    "Q": "quiet",
    "W": "wait",
}
_EFFECTIVE = """
    job-name= comment= nodes= ntasks= ntasks-per-node= ntasks-per-gpu= cpus-per-task= cpus-per-gpu= gres= gpus=
    gpus-per-node= gpus-per-task= mem= mem-per-cpu= mem-per-gpu= time= array= export= output= error= chdir= parsable
"""
_WITHOUT_EFFECT = """
    partition= account= qos= constraint= nodelist= exclude= reservation= licenses= clusters= cluster-constraint=
    distribution= extra-node-info= exclusive=? oversubscribe overcommit contiguous spread-job use-min-nodes switches=
    core-spec= thread-spec= sockets-per-node= cores-per-socket= threads-per-core= ntasks-per-socket= ntasks-per-core=
    hint= mincpus= tmp= mem-bind= gpu-bind= gpu-freq= cpu-freq= acctg-freq= profile= power= network= no-kill=?
    kill-on-invalid-dep= mail-type= mail-user= wckey= uid= gid= nice=? priority= requeue no-requeue open-mode=
    propagate=? get-user-env=? export-file= signal= time-min= deadline= delay-boot= prefer= reboot mcs-label= verbose
    quiet wait wait-all-nodes= ignore-pbs stepmgr
"""
_REFUSED = {
    "dependency=": "Weft has no dependencies between jobs",
    "hold": "Weft starts a job as soon as there is room: submit it when it is to run",
    "begin=": "Weft starts a job as soon as there is room: submit it when it is to run",
    "wrap=": "write the command into a script",
    "input=": "redirect the input of the command in the script",
    "test-only": "`--save` writes the manifest, and `weft validate` checks it",
    "nodefile=": "give the number of nodes, by --nodes",
    "gpus-per-socket=": "give the GPUs of each node, by --gpus-per-node",
    "container=": "the framework decides the image, by --framework",
    "container-image=": "the framework decides the image, by --framework",
    "tres-per-task=": "give the GPUs and CPUs, by --gpus-per-task and --cpus-per-task",
    "bb=": "a learner has no burst buffer",
    "bbf=": "a learner has no burst buffer",
}
_REASONS = {
    "signal": "a job that is halted gets SIGTERM, and time to save",
    "requeue": "Weft restarts a job that the platform has ended; `--set retries=N` restarts one that has failed",
    "wait": "`--follow` waits for the end of the job",
    "mail-type": "`weft show` and the dashboard tell the state",
    "nodelist": "a profile of the server's settings chooses nodes: `--set profile=NAME`",
    "constraint": "a profile of the server's settings chooses nodes: `--set profile=NAME`",
    "partition": "an engine or a profile chooses where a job runs: `--set engine=NAME`, `--set profile=NAME`",
    "priority": "`--set priority=N` orders Weft's queue, 0 to 100",
    "nice": "`--set priority=N` orders Weft's queue, 0 to 100",
}
_CONDITIONS = {"afterany": "{wait};", "afterok": "{wait} &&", "afternotok": "! {wait} &&"}
"""What stands in a shell before the next command. Those that go on in any case come first."""
_OTHER_CONDITIONS = {
    "after": "a job starts as soon as there is room: submit it when the other one has started",
    "singleton": "submit it when the other jobs of its name have ended",
    "aftercorr": "submit each job of the array when the other one has ended",
}
_MOST_JOBS = 1000
_MIB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}


def _kinds(text: str) -> dict[str, str]:
    """Names, and whether each has a value: ``=`` always, ``=?`` perhaps, else never."""
    return {word.rstrip("=?"): word[len(word.rstrip("=?")) :] for word in text.split()}


_EFFECTS = _kinds(_EFFECTIVE)
_REFUSALS = {name.rstrip("="): reason for name, reason in _REFUSED.items()}
_KINDS = _EFFECTS | _kinds(_WITHOUT_EFFECT) | _kinds(" ".join(_REFUSED))


@dataclass(frozen=True)
class Directive:
    """An option of ``sbatch``.

    Attributes:
        name: its long name.
        place: where it was found, such as ``train.sh:3``; empty: on the command line.
    """

    name: str
    value: str
    place: str = ""

    def __str__(self) -> str:
        place = f"{self.place}: " if self.place else ""
        return f"{place}--{self.name}" + (f"={self.value}" if self.value else "")


def take_option(words: list[str], place: str = "") -> list[Directive]:
    """Take the option at the beginning of ``words``, with its value; several, if it is ``-vN2``.

    Raises:
        InvalidScript: Slurm has no such option, or its value is missing.
    """
    word, where = words.pop(0), f"{place}: " if place else ""

    def following() -> str:
        if not words:
            raise InvalidScript(f"{where}{word} lacks its value")
        return words.pop(0)

    if word.startswith("--"):
        given, equals, value = word[2:].partition("=")
        name = _complete(given, where)
        if _KINDS[name] == "=" and not equals:
            value = following()
        elif _KINDS[name] == "" and equals:
            raise InvalidScript(f"{where}{word}: --{name} has no value")
        return [Directive(name, value, place)]
    found, letters = [], word[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        if letter not in _SHORT:
            raise InvalidScript(f"{where}unknown directive -{letter}")
        name, value = _SHORT[letter], ""
        if _KINDS[name] == "=":
            value, letters = letters.removeprefix("=") or following(), ""
        found.append(Directive(name, value, place))
    return found


def _complete(given: str, where: str) -> str:
    """The name of an option; Slurm accepts the beginning of a name."""
    if given in _KINDS:
        return given
    longer = [name for name in _KINDS if given and name.startswith(given)]
    if len(longer) == 1:
        return longer[0]
    near = longer or difflib.get_close_matches(given, _KINDS, 1)
    hint = f": did you mean --{' or --'.join(near)}?" if near else ""
    raise InvalidScript(f"{where}unknown directive --{given}{hint}")


@dataclass(frozen=True)
class BatchScript:
    """A batch script.

    Attributes:
        program: the program of its first line, and the program's options.
        directives: the directives before its first command.
        notes: what has no effect besides them, for the user.
    """

    program: Sequence[str]
    directives: Sequence[Directive]
    notes: Sequence[str]


def read_script(path: Path) -> BatchScript:
    """Raises: WeftError: the script can't be read. InvalidScript: lines of it are wrong; the text names all of them."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise WeftError(f"{path} can't be read: {error.strerror}") from error
    if not lines or not lines[0].startswith("#!"):
        raise InvalidScript(f"{path}:1: a batch script begins with #! and its program, such as #!/bin/bash")
    directives, notes, problems = [], [], []
    program, login = _program(lines[0])
    if login:
        notes.append(f"{path}:1: {login} has no effect on Weft: a learner has no login files")
    commands = False
    for number, line in enumerate(lines, start=1):
        if re.match(r"#SBATCH(\s|$)", line):
            place = f"{path}:{number}"
            if commands:
                notes.append(f"{place}: {line.strip()} has no effect: it comes after the first command, as in Slurm")
                continue
            try:
                words = shlex.split(line.removeprefix("#SBATCH"), comments=True)
                while words:
                    if not words[0].startswith("-"):
                        raise InvalidScript(f"{place}: expected a directive such as --nodes=2, found {words[0]!r}")
                    directives += take_option(words, place)
            except ValueError as error:
                problems.append(f"{place}: {str(error).lower()}")
            except InvalidScript as error:
                problems.append(str(error))
        elif line.strip() and not line.startswith("#"):
            commands = True
    if problems:
        raise InvalidScript("\n".join(problems))
    return BatchScript(program, directives, notes)


def _program(line: str) -> tuple[list[str], str]:
    """The program of a line ``#!``, by its name: learners need not have it in the same folder. And its option for a
    login shell, which is left out: it would read files that set another PATH."""
    words = line[2:].split()
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if word != "-S"]
    login = next((word for word in words[1:] if word in ("-l", "--login")), "")
    return [Path(words[0]).name if words else "bash", *(word for word in words[1:] if word != login)], login


@dataclass
class Batch:
    """A job, as directives describe it.

    Attributes:
        keys: keys of the manifest, except the framework.
        env: the manifest's ``env``.
        array: the indices of an array; empty: the job is none.
        notes: what directives did not do, for the user.
        folder: the folder of the code; None: the current one.
        parsable: whether only the id is to be printed.
    """

    keys: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    array: list[int] = field(default_factory=list)
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
            if name == "dependency":
                self.problems.append(f"{directive}: {_REFUSALS[name]}; {_instead_of(directive.value)}")
            elif name in _REFUSALS:
                self.problems.append(f"{directive}: {_REFUSALS[name]}")
            elif name not in _EFFECTS:
                reason = f": {_REASONS[name]}" if name in _REASONS else ""
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
        if "array" in self.found:
            batch.array = self._array()
        if "export" in self.found:
            self._export(batch)
        if "chdir" in self.found:
            batch.folder = Path(self.found["chdir"].value)
        batch.parsable = "parsable" in self.found
        if batch.env:
            batch.keys["env"] = batch.env
        return batch

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

    def _array(self) -> list[int]:
        value, _, most = self.found["array"].value.partition("%")
        indices: list[int] = []
        for part in value.split(","):
            match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", part.strip())
            if not match or int(match[2] or match[1]) < int(match[1]) or match[3] == "0":
                self._wrong("array", "expected indices such as 0-7, 1,3,5 or 0-15:4")
                return []
            indices += range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1))[: _MOST_JOBS + 1]
        if len(indices) > _MOST_JOBS:
            self._wrong("array", f"expected at most {_MOST_JOBS:,} indices")
        if most:
            self.notes.append(
                f"{self.found['array']}: %{most} has no effect on Weft: all jobs are queued, and run when there is room"
            )
        return list(dict.fromkeys(indices))

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


def _instead_of(dependency: str) -> str:
    """What does the same as ``afterok:JOB:JOB,afterany:JOB``, in words."""
    if "?" in dependency:
        return "`weft logs --follow JOB` waits for one of the jobs; leave out the others"
    jobs: dict[str, list[str]] = {kind: [] for kind in _CONDITIONS}
    for condition in dependency.split(","):
        kind, *ids = condition.split(":")
        if kind in _OTHER_CONDITIONS:
            return _OTHER_CONDITIONS[kind]
        if kind not in jobs or not all(ids) or not ids:
            return f"expected afterok:JOB, afterany:JOB or afternotok:JOB, found {condition!r}"
        jobs[kind] += ids
    waits = [_CONDITIONS[kind].format(wait=f"weft logs --follow {job}") for kind in jobs for job in jobs[kind]]
    return f"in a shell, `{' '.join(waits)} weft sbatch SCRIPT` does the same"


def seconds(time: str) -> int | None:
    """A time limit in seconds; None: there is none. Raises: ValueError, with a message for the user."""
    if time.upper() in ("UNLIMITED", "INFINITE", "-1", "0"):
        return None
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", time)
    if not match:
        accepted = "M, M:S, H:M:S, D-H, D-H:M or D-H:M:S (days, hours, minutes, seconds), or UNLIMITED"
        raise ValueError(f"expected {accepted}")
    days, *rest = (int(part) if part is not None else None for part in match.groups())
    first, second, third = rest
    if days is not None or third is not None:
        hours, minutes, left = first, second, third
    else:
        hours, minutes, left = 0, first, second
    return (days or 0) * 86400 + (hours or 0) * 3600 + (minutes or 0) * 60 + (left or 0)


def span(seconds: int) -> str:
    """A duration as manifests have it: ``1d12h``."""
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= size:
            parts.append(f"{seconds // size}{unit}")
            seconds %= size
    return "".join(parts) or "0s"
