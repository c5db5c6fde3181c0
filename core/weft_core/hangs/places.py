"""Where a process is, by the stacks of its threads: in a collective, in a data loader, in a debugger, or elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from weft_core.hangs.report import Frame, Process, Thread

_COLLECTIVES = (
    "torch/distributed/distributed_c10d.py",
    "torch/distributed/rendezvous.py",
    "torch/nn/parallel/distributed.py",
    "horovod/torch/mpi_ops.py",
    "horovod/torch/functions.py",
    "horovod/tensorflow/mpi_ops.py",
    "horovod/tensorflow/functions.py",
    "horovod/common/basics.py",
    "horovod/common/process_sets.py",
    "tensorflow/python/distribute/cross_device_ops.py",
    "tensorflow/python/distribute/cross_device_utils.py",
)
"""Files whose functions wait for the other ranks."""
_WRAPPERS = {"wrapper", "<lambda>", "inner", "_call_impl", "_wrapped_call_impl"}
_DATA_LOADERS = ("torch/utils/data/dataloader.py",)
_PIPELINES = ("tensorflow/python/data/ops/iterator_ops.py",)
_CALLED = "tensorflow/python/ops/script_ops.py"
"""By which TensorFlow calls Python code."""
_TENSORFLOW_STEP = "tensorflow/python/eager/execute.py"
_DEBUGGERS = ("pdb.py", "bdb.py", "debugpy/")

Kind = Literal["collective", "backward", "step", "loader", "debugger", "elsewhere", "unknown"]
"""``backward`` and ``step`` may wait for other ranks, or work: the stack does not show which."""


@dataclass(frozen=True)
class Place:
    kind: Kind
    what: str = ""
    """The function, as the user knows it: 'all_reduce', 'DataLoader'."""
    at: str = ""
    """The line of the user's code: 'train.py:88'."""

    def __str__(self) -> str:
        if self.what and self.at:
            return f"{self.what} ({self.at})"
        return self.what or self.at or "an unknown place"


UNKNOWN = Place("unknown")


def find_place(main: Process, helpers: Sequence[Process] = ()) -> Place:
    """Where a rank is.

    Args:
        main: its process.
        helpers: the processes that it has started, such as the workers of its data loader.
    """
    threads = [thread for thread in main.threads if thread.frames]
    if not threads:
        return UNKNOWN
    place = _place(threads[0])
    # Python code in TensorFlow's input pipelines runs in a thread of its own, for which steps and iterators wait.
    called = [thread for thread in threads[1:] if any(_is_in(frame, (_CALLED,)) for frame in thread.frames)]
    if place.kind == "step":
        return next((_place(thread) for thread in called if _innermost_own(thread) is not None), place)
    if place.kind == "loader":
        working = next(_own_lines([*helpers, main.model_copy(update={"threads": called})]), None)
        return Place("loader", place.what, working or place.at)
    return place


def _place(thread: Thread) -> Place:
    frames = thread.frames
    own = _innermost_own(thread)
    at = "" if own is None else _line(frames[own])
    inner = frames if own is None else frames[:own]
    if any(_is_in(frame, _DEBUGGERS) for frame in inner):
        return Place("debugger", "a debugger", at)
    if any(_is_in(frame, _DATA_LOADERS) for frame in frames):
        return Place("loader", "DataLoader", at)
    if any(_is_in(frame, _PIPELINES) for frame in inner):
        return Place("loader", "tf.data", at)
    calls = [frame for frame in inner if _is_in(frame, _COLLECTIVES) and frame.function not in _WRAPPERS]
    if calls:
        return Place("collective", _collective(calls[-1]), at)
    if any(frame.function == "_engine_run_backward" for frame in inner):
        return Place("backward", "backward", at)
    if any(_is_in(frame, (_TENSORFLOW_STEP,)) for frame in inner):
        return Place("step", "a step of TensorFlow", at)
    if own is None:
        return Place("elsewhere", frames[-1].function, _line(frames[-1]))
    called = frames[own - 1].function if own else frames[own].function
    return Place("elsewhere", "" if called.startswith("<") else called, at)


def _collective(frame: Frame) -> str:
    if "rendezvous" in frame.file:
        return "init_process_group"
    if frame.file.endswith("torch/nn/parallel/distributed.py"):
        return "DistributedDataParallel"
    return frame.function if "horovod/" not in frame.file else f"hvd.{frame.function.lstrip('_')}"


def _innermost_own(thread: Thread) -> int | None:
    return next((n for n, frame in enumerate(thread.frames) if frame.own), None)


def _own_lines(processes: Sequence[Process]) -> Iterator[str]:
    for process in processes:
        for thread in process.threads:
            own = _innermost_own(thread)
            if own is not None:
                yield _line(thread.frames[own])


def _line(frame: Frame) -> str:
    return f"{frame.file if frame.own else frame.file.rpartition('/')[2]}:{frame.line}"


def _is_in(frame: Frame, files: Sequence[str]) -> bool:
    return any(f"/{frame.file}".endswith(f"/{file}") or (file.endswith("/") and file in frame.file) for file in files)
