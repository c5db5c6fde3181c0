"""Shows the agent which collectives this process has entered, by PyTorch's flight recorder, and for Horovod how many it
has finished, and which it waits for. It is copied into the program's own environment, and imported when the program
imports ``torch.distributed`` or Horovod.

The flight recorder is in the process's memory, and no tool can read it from outside. A thread waits in the opening of a
FIFO, where it costs nothing. When the agent opens the other end, the thread writes the recorder's entries to a file.
While the program hangs in a collective, PyTorch has released the interpreter, so the thread can run.
"""

from __future__ import annotations

import os
import sys
import threading

# The program may import this file under any version of Python, in any order: it brings no other module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FOLDER_VARIABLE = "WEFT_COLLECTIVES_DIR"
THREAD = "weft-collectives"
"""The name of the thread, which stacks leave out."""

_serving: list[int] = []
"""The process whose thread waits: a forked child has the list and not the thread."""


_finished = [0]
"""Horovod's collectives that this process has finished."""
_submitted: dict[int, str] = {}
"""Horovod's tensors that this process has submitted and not yet received, by handle."""
_KINDS = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter")
_MOST_NAMES, _LONGEST = 256, 120


def show_collectives(module: Any) -> None:
    """Have the module ``torch.distributed.distributed_c10d`` start the thread with the first process group, or
    ``horovod.torch.mpi_ops`` with the first collective. Programs that have none get no thread."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return
    if hasattr(module, "synchronize"):
        _count(module, folder)
    else:
        _record(module, folder)


def _count(module: Any, folder: str) -> None:
    """Horovod has no recorder. Each of its collectives ends in ``synchronize``, where PyTorch's binding waits."""
    import functools  # PyTorch has imported it

    synchronize = module.synchronize

    @functools.wraps(synchronize)
    def counted(handle: Any) -> Any:
        if os.getpid() not in _serving:
            _quietly_serve(None, folder)
        try:
            done = synchronize(handle)
        finally:
            _submitted.pop(handle, None)
        _finished[0] += 1
        return done

    module.synchronize = counted
    for kind in (*_KINDS, *(f"grouped_{kind}" for kind in _KINDS)):
        submit = getattr(module, f"_{kind}_async", None)
        code = getattr(submit, "__code__", None)
        if code is not None and {"name", "process_set"} <= set(code.co_varnames):
            setattr(module, f"_{kind}_async", _named(kind, submit))


def _named(kind: str, submit: Any) -> Any:
    """``submit`` of ``horovod.torch.mpi_ops``, which also keeps the tensor's name as Horovod's own messages have it."""
    import functools

    names = submit.__code__.co_varnames

    @functools.wraps(submit)
    def submitted(*args: Any, **options: Any) -> Any:
        handle = submit(*args, **options)
        try:
            given = dict(zip(names, args), **options)
            if given["process_set"].process_set_id == 0:  # of other sets, not all ranks are members
                _submitted[handle] = f"{kind}.{given['name'] or f'noname.{handle}'}"[:_LONGEST]
        except Exception:  # noqa: S110 - another version of Horovod
            pass
        return handle

    return submitted


def _awaited() -> list[str] | None:
    """The tensors for which this process waits; None: unknown."""
    module = sys.modules.get("horovod.torch.mpi_ops")
    if module is None:
        return None
    waits = []
    for handle, name in list(_submitted.items()):
        try:
            if not module.poll(handle):
                waits.append(name)
        except Exception:  # it has arrived just now, or Horovod has begun anew
            _submitted.pop(handle, None)
    return waits if len(waits) <= _MOST_NAMES else None


def _record(module: Any, folder: str) -> None:
    import functools  # PyTorch has imported it

    init = module.init_process_group

    @functools.wraps(init)
    def init_process_group(*args: Any, **options: Any) -> Any:
        _quietly_serve(module, folder)
        return init(*args, **options)

    module.init_process_group = init_process_group


def _quietly_serve(module: Any, folder: str) -> None:
    try:  # noqa: SIM105 - contextlib may not be loaded
        _serve(module, folder)
    except Exception:  # noqa: S110 - the program trains all the same
        pass


def _serve(module: Any, folder: str) -> None:
    """``module``: of PyTorch's process groups; None: only Horovod's count is shown."""
    if os.getpid() in _serving:
        return
    dump = None
    if module is not None:
        library: Any = sys.modules["torch._C._distributed_c10d"]
        dump = getattr(library, "_dump_fr_trace_json", None) or getattr(library, "_dump_nccl_trace_json", None)
        if dump is None:  # an old PyTorch
            return
    asked = os.path.join(folder, f"{os.getpid()}.asked")
    if os.path.lexists(asked):
        os.unlink(asked)
    os.mkfifo(asked, 0o600)
    _serving[:] = [os.getpid()]
    threading.Thread(target=_answer, args=(module, dump, asked), name=THREAD, daemon=True).start()


def _answer(module: Any, dump: Callable[[], bytes] | None, asked: str) -> None:
    import json

    answer = f"{asked.removesuffix('.asked')}.json"
    try:
        while True:
            with open(asked, "rb") as pipe:
                pipe.read()
            groups, rank, trace = {}, None, b""
            if dump is not None:
                world = module._world
                groups = {str(world.pg_names[group]): sorted(ranks) for group, ranks in world.pg_group_ranks.items()}
                rank = module.get_rank() if module.is_initialized() else None
                trace = dump()
            about = {"rank": rank, "groups": groups, "finished": _finished[0]}
            head = json.dumps(about | {"submitted": _awaited()}).encode()
            with open(f"{answer}.new", "wb") as file:
                file.write(head + b"\n" + trace)
            os.replace(f"{answer}.new", answer)
    except Exception:  # the folder is gone, or PyTorch has changed: the agent goes by the stacks
        return
