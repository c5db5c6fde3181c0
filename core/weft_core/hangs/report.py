"""What a learner's agent reports of its processes when the gang makes no progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field


def _cut(most: int) -> Callable[[Any], Any]:
    """Makes a text that Postgres can hold, of at most so many characters: programs may give their functions any
    name."""

    def clean(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return value[:most].replace("\0", "\ufffd").encode("utf-8", "replace").decode()

    return clean


_Name = Annotated[str, BeforeValidator(_cut(120))]
_Path = Annotated[str, BeforeValidator(_cut(200))]
_Number = Annotated[int, Field(ge=0, le=2**53)]
_Rank = Annotated[int, Field(ge=0, le=1_000_000)]


class Frame(BaseModel):
    function: _Name
    file: _Path = Field(description="Relative to the folder of the code for the user's own files.")
    line: _Number
    own: bool = Field(default=False, description="Whether the file is the user's, and not a library's.")


class Thread(BaseModel):
    name: _Name = ""
    frames: list[Frame] = Field(default=[], max_length=60, description="The innermost call first.")


class Collective(BaseModel):
    """An entry of PyTorch's flight recorder."""

    group: _Name = Field(description="The process group; '0' is the default group.")
    number: _Number = Field(description="The collective's number in its group, from 1.")
    operation: _Name
    shapes: _Path = ""
    done: bool


class Process(BaseModel):
    pid: _Number
    rank: _Rank | None = Field(default=None, description="Null if its environment names no rank.")
    world: _Rank | None = Field(default=None, description="The number of ranks.")
    command: _Path = ""
    state: _Name = Field(default="", description="As psutil names it: sleeping, running, stopped, disk-sleep.")
    threads: list[Thread] = Field(default=[], max_length=16)
    recorded: bool = Field(default=False, description="Whether its flight recorder answered.")
    collectives: list[Collective] = Field(
        default=[], max_length=100, description="The newest collectives of each group, and those in flight."
    )
    finished: _Number | None = Field(default=None, description="The number of Horovod's collectives that are over.")
    submitted: list[_Name] | None = Field(
        default=None,
        max_length=256,
        description="The tensors for which it waits because Horovod has not got them from all ranks; null: unknown.",
    )
    still: bool = Field(default=False, description="Whether several looks at the process have shown the same.")
    cpu_percent: float = Field(default=0.0, ge=0, le=1e6, description="Of one core, between the looks.")
    groups: dict[_Name, Annotated[list[_Rank], Field(max_length=1024)]] = Field(
        default={}, max_length=32, description="The ranks of each process group."
    )


class Report(BaseModel):
    """The processes of a learner, each parent before its children."""

    processes: list[Process] = Field(default=[], max_length=64)
    missing: dict[_Rank, Annotated[list[_Name], Field(max_length=16)]] = Field(
        default={},
        max_length=1024,
        description="By rank, the tensors that it has not submitted and other ranks have, as Horovod's stall inspector "
        "has logged.",
    )
