"""The planted hangs, each with its true cause, and the programs that only look as if they hung."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Kind:
    """A launcher with a program."""

    title: str
    program: str
    quiet: str
    """The program that only looks as if it hung."""
    framework: Mapping[str, Any]
    memory: str = "1Gb"


TORCH = Kind("torchrun", "torch_hangs.py", "torch_quiet.py", {"name": "pytorch"})
HOROVOD = Kind(
    "Horovod, PyTorch",
    "horovod_hangs.py",
    "horovod_quiet.py",
    {"name": "horovod", "version": "0.28.1-torch2.13"},
)
HOROVOD_TF = Kind(
    "Horovod, TensorFlow",
    "horovod_tf_hangs.py",
    "horovod_tf_quiet.py",
    {"name": "horovod", "version": "0.28.1-tf2.21"},
)
TENSORFLOW = Kind("TensorFlow", "tensorflow_hangs.py", "", {"name": "tensorflow", "version": "2.21"})


@dataclass(frozen=True)
class Hang:
    """The true cause of a hang. The comments in its program mark the lines."""

    kind: Kind
    name: str
    ranks: int = 2
    blamed: Sequence[int] = (1,)
    """The culprits; none: no rank is more to blame than another."""
    state: str = "running"
    """Of the culprits."""
    collective: str = ""
    """In which the others wait, as far as the framework shows it."""
    number: int | None = None
    """Of the collective, where it is counted."""
    says: str = ""
    """What the verdict must say in addition."""

    @property
    def waiting(self) -> list[int]:
        return [rank for rank in range(self.ranks) if rank not in self.blamed]


HANGS = (
    Hang(TORCH, "skipped", 3, collective="all_reduce", number=7, says="barrier"),
    Hang(TORCH, "shapes", blamed=(), collective="all_reduce", number=4, says="different shapes"),
    Hang(TORCH, "stopped", blamed=(0,), state="stopped", says="SIGSTOP"),
    Hang(TORCH, "loader", collective="all_reduce", number=6, says="DataLoader"),
    Hang(TORCH, "debugger", collective="barrier", number=4, says="a debugger"),
    Hang(TORCH, "full_disk", 3, (0,), collective="barrier", number=4),
    Hang(TORCH, "no_work", 3, state="exit code 0", collective="init_process_group"),
    Hang(TORCH, "crossed", blamed=(), says="different groups"),
    Hang(TORCH, "file_lock", collective="all_reduce", number=4),
    Hang(TORCH, "prefetcher", 3, (2,), collective="all_reduce", number=4),
    Hang(TORCH, "uneven", 3, says="barrier"),
    Hang(HOROVOD, "saving", collective="hvd.allreduce"),
    Hang(HOROVOD, "names", blamed=(), says="gradient.0"),
    Hang(HOROVOD, "stopped", state="stopped", says="SIGSTOP"),
    Hang(HOROVOD, "loader", collective="hvd.allreduce", says="DataLoader"),
    Hang(HOROVOD, "debugger", blamed=(0,), collective="hvd.allreduce", says="a debugger"),
    Hang(HOROVOD, "early", 3, says="hvd.broadcast"),
    Hang(HOROVOD_TF, "pipe"),
    Hang(HOROVOD_TF, "names", blamed=(), says="gradient.0"),
    Hang(TENSORFLOW, "saving"),
    Hang(TENSORFLOW, "pipeline"),
    Hang(TENSORFLOW, "debugger", says="a debugger"),
    Hang(TENSORFLOW, "uneven"),
    Hang(TENSORFLOW, "alone", 1, (), says="socket.accept"),
)

QUIET = (
    (TORCH, "evaluation"),
    (TORCH, "compilation"),
    (TORCH, "saving"),
    (TORCH, "reading"),
    (HOROVOD, "evaluation"),
    (HOROVOD, "epoch"),
    (HOROVOD_TF, "step"),
    (HOROVOD_TF, "last"),
)
"""Programs that work for four times as long as a hang may last, without a line; with two ranks each."""


def lines(program: str, name: str, role: str) -> set[str]:
    """The places in a program with the mark of a hang: 'train.py:88'.

    Args:
        role: 'blamed' or 'waits'.
    """
    found = set()
    for number, line in enumerate((PROGRAMS / program).read_text().splitlines(), 1):
        _, mark, comment = line.partition("  # ")
        roles, _, names = comment.rpartition(": ")
        if mark and role in roles.split(" and ") and name in names.split(", "):
            found.add(f"{program}:{number}")
    return found
