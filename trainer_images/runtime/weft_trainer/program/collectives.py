"""Shows PyTorch's flight recorder to the agent: which collectives this process has entered. It is copied into the
program's own environment, and imported when the program imports ``torch.distributed``.

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


def show_collectives(module: Any) -> None:
    """Have the module ``torch.distributed.distributed_c10d`` start the thread with the first process group. Programs
    that make none get no thread."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return
    import functools  # PyTorch has imported it

    init = module.init_process_group

    @functools.wraps(init)
    def init_process_group(*args: Any, **options: Any) -> Any:
        try:  # noqa: SIM105 - contextlib may not be loaded
            _serve(module, folder)
        except Exception:  # noqa: S110 - the program trains all the same
            pass
        return init(*args, **options)

    module.init_process_group = init_process_group


def _serve(module: Any, folder: str) -> None:
    if os.getpid() in _serving:
        return
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


def _answer(module: Any, dump: Callable[[], bytes], asked: str) -> None:
    import json

    answer = f"{asked.removesuffix('.asked')}.json"
    try:
        while True:
            with open(asked, "rb") as pipe:
                pipe.read()
            world = module._world
            groups = {str(world.pg_names[group]): sorted(ranks) for group, ranks in world.pg_group_ranks.items()}
            rank = module.get_rank() if module.is_initialized() else None
            head = json.dumps({"rank": rank, "groups": groups}).encode()
            with open(f"{answer}.new", "wb") as file:
                file.write(head + b"\n" + dump())
            os.replace(f"{answer}.new", answer)
    except Exception:  # the folder is gone, or PyTorch has changed: the agent goes by the stacks
        return
