"""Ends PyTorch's process group before the interpreter ends. It is copied into the program's own environment, whose
interpreter imports it when it starts.

A program that leaves the group to the interpreter's end may die there with SIGABRT ("terminate called without an active
exception"), although it has done its work. One of Gloo's threads gives back a tensor, which needs the interpreter, and
Python before 3.14 ends such a thread, in the middle of a C++ destructor. PyTorch asks programs to call
``destroy_process_group``, and many don't.
"""

import atexit
import sys
import threading
from collections.abc import Callable

_SECONDS = 5.0
"""Peers that have died may keep the group from ending. Then the program ends as it would without this."""


def _end_process_group() -> None:
    torch, distributed = sys.modules.get("torch"), sys.modules.get("torch.distributed")
    if torch is None or distributed is None or hasattr(sys, "last_value"):  # an exception has ended the program
        return
    try:
        # With GPUs, the group ends by NCCL's own rules.
        if not distributed.is_initialized() or torch.cuda.is_initialized():
            return
    except AttributeError:  # half imported, or another package of this name
        return
    ending = threading.Thread(target=_quietly, args=(distributed.destroy_process_group,), daemon=True)
    ending.start()
    ending.join(_SECONDS)


def _quietly(end: Callable[[], object]) -> None:
    try:  # noqa: SIM105 - every Python of the job imports this file, and contextlib takes a millisecond
        end()
    except Exception:  # noqa: S110 - the program's work is done
        pass


atexit.register(_end_process_group)
