"""Ends PyTorch's process groups without harm. It is copied into the program's own environment, whose interpreter
imports it when it starts. Two faults of PyTorch hit programs that have done their work.

A program that leaves the group to the interpreter's end may die there with SIGABRT ("terminate called without an active
exception"). One of Gloo's threads gives back a tensor, which needs the interpreter, and Python before 3.14 ends such a
thread, in the middle of a C++ destructor. PyTorch asks programs to call ``destroy_process_group``, and many don't.

A program that does call it may hang for ever when its model goes. DistributedDataParallel's reducer then has the last
reference to the group. Its destructor waits for the same thread of Gloo's and keeps the interpreter locked, so the
thread can't give back its tensor. The destructor that Python's own references call unlocks it.
"""

from __future__ import annotations

import atexit
import sys
import threading

# Every Python of the job imports this file: it leaves out modules that an interpreter does not load anyway.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from typing import Any

_GROUPS = "torch.distributed.distributed_c10d"
_HOROVOD = "horovod.torch.mpi_ops"
_OPTIMIZER = "torch.optim.optimizer"
_SECONDS = 5.0
"""Peers that have died may keep the group from ending. Then the program ends as it would without this."""

_destroyed: list[Any] = []
"""The groups that the program has destroyed last: references that outlive the reducer's."""


class _Finder:
    """Changes these modules when the program imports them, before others take functions from them."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in (_GROUPS, _HOROVOD, _OPTIMIZER):
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                if name == _OPTIMIZER:
                    _call("weft_profiling", "offer_profiler", module)
                    return
                if name == _GROUPS:
                    _keep_destroyed(module)
                _call("weft_collectives", "show_collectives", module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _keep_destroyed(module: Any) -> None:
    import functools  # PyTorch has imported it

    destroy = module.destroy_process_group

    @functools.wraps(destroy)
    def destroy_process_group(*args: Any, **options: Any) -> Any:
        # With GPUs, groups end by NCCL's own rules.
        groups = [] if module.torch.cuda.is_initialized() else list(module._world.pg_map)
        done = destroy(*args, **options)
        _destroyed[:] = groups
        return done

    module.destroy_process_group = destroy_process_group


def _call(ours: str, function: str, module: Any) -> None:
    from importlib import import_module

    try:
        found = import_module(ours)
    except ImportError:  # the program has replaced its sys.path
        return
    getattr(found, function)(module)


def _end_process_group() -> None:
    torch, distributed = sys.modules.get("torch"), sys.modules.get("torch.distributed")
    if torch is None or distributed is None or hasattr(sys, "last_value"):  # an exception has ended the program
        return
    try:
        is_open = distributed.is_initialized()
        if torch.cuda.is_initialized() or not (is_open or _destroyed):
            return
    except AttributeError:  # half imported, or another package of this name
        return

    def end() -> None:
        if is_open:
            distributed.destroy_process_group()
        _destroyed.clear()

    ending = threading.Thread(target=_quietly, args=(end,), daemon=True)
    ending.start()
    ending.join(_SECONDS)


def _quietly(end: Callable[[], object]) -> None:
    try:  # noqa: SIM105 - contextlib takes a millisecond
        end()
    except Exception:  # noqa: S110 - the program's work is done
        pass


sys.meta_path.insert(0, _Finder)
atexit.register(_end_process_group)
