"""The options of ``srun``, and the tasks that they ask for."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from weft_trainer.launchers.slurm_gang import Gang
from weft_trainer.launchers.slurm_hosts import expand, repeated

_SHORT = {
    "N": "nodes",
    "n": "ntasks",
    "c": "cpus-per-task",
    "G": "gpus",
    "l": "label",
    "K": "kill-on-bad-exit",
    "o": "output",
    "e": "error",
    "i": "input",
    "D": "chdir",
    "w": "nodelist",
    "x": "exclude",
    "r": "relative",
    "J": "job-name",
    "u": "unbuffered",
    "t": "time",
    "p": "partition",
    "A": "account",
    "m": "distribution",
    "W": "wait",
    "v": "verbose",
    "Q": "quiet",
    "q": "qos",
    "O": "overcommit",
    "s": "oversubscribe",
}
_EFFECTIVE = """
    nodes= ntasks= ntasks-per-node= cpus-per-task= gpus-per-task= gpu-bind= export= label kill-on-bad-exit=? output=
    error= input= chdir= nodelist= exclude= relative= job-name= open-mode=
"""
_WITHOUT_EFFECT = """
    gpus= gpus-per-node= gres= gpus-per-socket= ntasks-per-gpu= ntasks-per-core= ntasks-per-socket= cpus-per-gpu= mem=
    mem-per-cpu= mem-per-gpu= mem-bind= cpu-bind= threads-per-core= hint= distribution= unbuffered exclusive=? overlap
    exact overcommit oversubscribe mpi= network= partition= account= qos= constraint= comment= verbose quiet time= wait=
    propagate=? profile= acctg-freq= cpu-freq= gpu-freq= resv-ports=? no-kill=? whole disable-status slurmd-debug=
    switches= accel-bind= task-epilog= task-prolog= jobid= reservation= tres-bind= treeload=
"""


def _kinds(text: str) -> dict[str, str]:
    """Names, and whether each has a value: ``=`` always, ``=?`` perhaps, else never."""
    return {word.rstrip("=?"): word[len(word.rstrip("=?")) :] for word in text.split()}


_EFFECTS = _kinds(_EFFECTIVE)
_KINDS = _EFFECTS | _kinds(_WITHOUT_EFFECT)


class OptionError(Exception):
    """The message is for the user."""


@dataclass(frozen=True)
class StepOptions:
    """Values by the options' long names, and the command."""

    values: Mapping[str, str]
    command: tuple[str, ...]
    ineffective: tuple[str, ...] = ()
    """Options that were given and change nothing, as they were written."""

    def number(self, name: str, least: int = 1) -> int | None:
        value = self.values.get(name)
        if value is None:
            return None
        # `-N 2-2` is a range of one number; `--gpus-per-task=a100:1` names a type.
        found = re.fullmatch(r"(?:[A-Za-z][\w.-]*:)?(\d+)(?:-\1)?", value)
        if not found or int(found[1]) < least:
            raise OptionError(f"--{name}: expected a whole number from {least}, found {value!r}")
        return int(found[1])


def parse_options(words: Sequence[str], env: Mapping[str, str]) -> StepOptions:
    """The options before the command. The environment gives defaults, as Slurm's own ``srun`` takes them.

    Raises:
        OptionError: an option is unknown or lacks its value, or there is no command.
    """
    defaults = {
        "ntasks-per-node": env.get("SLURM_NTASKS_PER_NODE"),
        "cpus-per-task": env.get("SRUN_CPUS_PER_TASK") or env.get("SLURM_CPUS_PER_TASK"),
        "gpus-per-task": env.get("SLURM_GPUS_PER_TASK"),
        "kill-on-bad-exit": env.get("SLURM_KILL_BAD_EXIT"),
        "export": env.get("SLURM_EXPORT_ENV"),
        "label": env.get("SLURM_LABELIO"),
        "chdir": env.get("SLURM_WORKING_DIR"),
    }
    values = {name: value for name, value in defaults.items() if value}
    ineffective, left = [], list(words)
    while left and left[0].startswith("-") and left[0] != "-":
        word = left.pop(0)
        if word == "--":
            break
        for name, value in _read(word, left):
            if name not in _EFFECTS:
                ineffective.append(f"--{name}" + (f"={value}" if value else ""))
            elif name == "ntasks-per-node":
                values[name] = value
            else:
                values[name] = value or "1"
    if not left:
        raise OptionError("no command to run")
    return StepOptions(values, tuple(left), tuple(ineffective))


def _read(word: str, left: list[str]) -> list[tuple[str, str]]:
    """The options of a word, with their values; takes a value that is the next word."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        name = _complete(name)
        if _KINDS[name] == "=" and not equals:
            value = _next(word, left)
        elif _KINDS[name] == "" and equals:
            raise OptionError(f"{word}: --{name} has no value")
        return [(name, value)]
    found, letters = [], word[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        if letter not in _SHORT:
            raise OptionError(f"unknown option -{letter} in {word}")
        name, value = _SHORT[letter], ""
        if _KINDS[name] == "=?" and letters.isdecimal():  # -K0
            value, letters = letters, ""
        elif _KINDS[name] == "=":
            value, letters = letters.removeprefix("=") or _next(word, left), ""
        found.append((name, value))
    return found


def _complete(name: str) -> str:
    """The long name that a user's word means; Slurm accepts beginnings."""
    if name in _KINDS:
        return name
    longer = [known for known in _KINDS if name and known.startswith(name)]
    if len(longer) == 1:
        return longer[0]
    near = longer or difflib.get_close_matches(name, _KINDS, 1)
    hint = f": did you mean --{' or --'.join(near)}?" if near else ""
    raise OptionError(f"unknown option --{name}{hint}")


def _next(word: str, left: list[str]) -> str:
    if not left:
        raise OptionError(f"{word} lacks its value")
    return left.pop(0)


@dataclass(frozen=True)
class Layout:
    """The learners of a step, by rank, and the number of tasks in each. Tasks are numbered learner by learner."""

    ranks: tuple[int, ...]
    counts: tuple[int, ...]
    names: tuple[str, ...] = field(default=())

    @property
    def tasks(self) -> int:
        return sum(self.counts)

    def first(self, node: int) -> int:
        """The number of a node's first task. ``node``: the position in ``ranks``."""
        return sum(self.counts[:node])

    def environment(self, step: int, origin: str) -> dict[str, str]:
        """The variables that all tasks of a step have. ``origin``: the address of the learner that runs ``srun``."""
        nodes, tasks, number = str(len(self.ranks)), str(self.tasks), str(step)
        spread, names = repeated(list(self.counts)), ",".join(self.names)
        env = {
            "SLURM_STEP_ID": number,
            "SLURM_STEPID": number,
            "SLURM_STEP_NODELIST": names,
            "SLURM_STEP_NUM_NODES": nodes,
            "SLURM_STEP_NUM_TASKS": tasks,
            "SLURM_STEP_TASKS_PER_NODE": spread,
            "SLURM_TASKS_PER_NODE": spread,
            "SLURM_NODELIST": names,
            "SLURM_NNODES": nodes,
            "SLURM_NTASKS": tasks,
            "SLURM_NPROCS": tasks,
            "SLURM_LAUNCH_NODE_IPADDR": origin,
            "SLURM_SRUN_COMM_HOST": origin,
        }
        if len(set(self.counts)) == 1:
            env["SLURM_NTASKS_PER_NODE"] = str(self.counts[0])
        return env


def lay_out(options: StepOptions, gang: Gang) -> Layout:
    """The learners and tasks that options ask for. Raises: OptionError."""
    chosen = _named(options.values.get("nodelist"), gang)
    excluded = _named(options.values.get("exclude"), gang)
    free = [rank for rank in range(len(gang.nodes)) if rank not in excluded]
    free = free[options.number("relative", 0) or 0 :]
    available = chosen + [rank for rank in free if rank not in chosen]
    if not available:
        raise OptionError("no learner is left for the step")
    nodes, tasks, per_node = (options.number(name) for name in ("nodes", "ntasks", "ntasks-per-node"))
    if nodes is None:
        nodes = len(chosen) or len(available)
        if tasks is not None and not chosen:
            nodes = -(-tasks // per_node) if per_node else min(tasks, nodes)
    if nodes > len(available):
        raise OptionError(f"{nodes} nodes are requested, and {len(available)} are available")
    if tasks is None:
        tasks = nodes * (per_node or 1)
    nodes = min(nodes, tasks)
    counts = [tasks // nodes + (1 if node < tasks % nodes else 0) for node in range(nodes)]
    if "ntasks" in options.values and per_node and max(counts) > per_node:
        raise OptionError(f"{tasks} tasks do not fit on {nodes} nodes with --ntasks-per-node={per_node}")
    ranks = tuple(sorted(available[:nodes]))
    return Layout(ranks, tuple(counts), tuple(gang.names[rank] for rank in ranks))


def _named(hosts: str | None, gang: Gang) -> list[int]:
    """The ranks of a list of hosts: names of SLURM_JOB_NODELIST, or ``learner-2``."""
    try:
        names = expand(hosts or "")
    except ValueError as error:
        raise OptionError(str(error)) from None
    ranks: list[int] = []
    for name in dict.fromkeys(names):
        label = re.fullmatch(r"learner-(\d+)", name)
        found = [int(label[1]) - 1] if label else [rank for rank, known in enumerate(gang.names) if known == name]
        if not found or not 0 <= found[0] < len(gang.nodes):
            raise OptionError(f"{name} is no node of this job: its nodes are {', '.join(gang.names)}")
        if len(found) not in (1, names.count(name)):
            those = ", ".join(f"learner-{rank + 1}" for rank in found)
            raise OptionError(f"{name} is the address of several learners on one machine: name {those} instead")
        ranks += found
    return ranks
