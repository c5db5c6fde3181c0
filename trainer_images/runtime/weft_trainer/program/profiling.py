"""Runs PyTorch's profiler in this process when the agent asks for it. It is copied into the program's own environment,
and imported when the program imports ``torch.optim``.

A program that makes an optimizer gets a thread that waits in the opening of a FIFO, where it costs nothing. The agent
writes a request into the FIFO. The thread then has the optimizer call ``_Recording.stepped`` after each step, in the
program's own thread: after the first step the profiler starts, and some steps later it stops. Before and after that,
nothing of this file runs.
"""

from __future__ import annotations

import os
import sys
import threading

# The program may import this file under any version of Python, in any order: it brings no other module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLDER_VARIABLE = "WEFT_PROFILES_DIR"
THREAD = "weft-profiling"
"""The name of the thread, which stacks leave out."""

_LAST_STEP = 60.0
"""Seconds for the step that runs when the time is up."""

_latest: list[_Recording] = []
"""The last recording."""
_serving: list[int] = []
"""The process whose thread waits: a forked child has the list and not the thread."""


def offer_profiler(module: Any) -> None:
    """Have the module ``torch.optim.optimizer`` start the thread with the first optimizer. Programs that make none get
    no thread."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder or not hasattr(module, "_global_optimizer_post_hooks"):  # an old PyTorch
        return
    import functools  # PyTorch has imported it

    init = module.Optimizer.__init__

    @functools.wraps(init)
    def made(self: Any, *args: Any, **options: Any) -> None:
        try:  # noqa: SIM105 - contextlib may not be loaded
            _serve(module, folder)
        except Exception:  # noqa: S110 - the program trains all the same
            pass
        init(self, *args, **options)

    module.Optimizer.__init__ = made


def _serve(module: Any, folder: str) -> None:
    if os.getpid() in _serving:
        return
    asked = os.path.join(folder, f"{os.getpid()}.asked")
    if os.path.lexists(asked):
        os.unlink(asked)
    os.mkfifo(asked, 0o600)
    _serving[:] = [os.getpid()]
    threading.Thread(target=_answer, args=(module, asked), name=THREAD, daemon=True).start()


def _answer(module: Any, asked: str) -> None:
    import json

    answer = f"{asked.removesuffix('.asked')}.json"
    try:
        while True:
            with open(asked, "rb") as pipe:
                request = json.loads(pipe.read())
            told = _record(module, request)
            with open(f"{answer}.new", "w") as file:
                json.dump({"id": request["id"], "rank": _rank(), **told}, file)
            os.replace(f"{answer}.new", answer)
    except Exception:  # the folder is gone: the agent goes by py-spy
        return


def _record(module: Any, request: Any) -> dict[str, Any]:
    """Record a trace. Returns ``steps``, or ``error``."""
    if _latest and not _latest[-1].ended.is_set():
        return {"error": "the step in which the last recording should have ended still runs"}
    recording = _Recording(module, request["steps"])
    _latest[:] = [recording]
    recording.begin()
    try:
        if not recording.ended.wait(request["seconds"]):
            if not recording.hurry():
                return {"error": f"it has made no step of an optimizer in {request['seconds']:g} s"}
            if not recording.ended.wait(_LAST_STEP):
                return {"error": f"its last step has not ended within {_LAST_STEP:g} s"}
        if recording.error is None:
            recording.profiler.export_chrome_trace(request["trace"])
    except Exception as error:
        recording.error = error
    if recording.error is not None:
        return {"error": f"PyTorch's profiler failed: {type(recording.error).__name__}: {recording.error}"[:500]}
    return {"steps": recording.steps}


class _Recording:
    """The profiler starts and stops in the program's own thread, after a step."""

    def __init__(self, module: Any, steps: int) -> None:
        self._module = module
        self._left = steps
        self._lock = threading.Lock()
        self._optimizer: Any = None
        self._own: Any = None
        """The program's own hooks."""
        self.profiler: Any = None
        self.steps = 0
        self.ended = threading.Event()
        self.error: Exception | None = None

    def begin(self) -> None:
        # Another dictionary takes the place of the program's: a step that is just calling hooks keeps its own.
        self._own = self._module._global_optimizer_post_hooks
        ours = type(self._own)(self._own)
        ours[id(self)] = self.stepped
        self._module._global_optimizer_post_hooks = ours

    def hurry(self) -> bool:
        """The time is up: the step that runs is the last. Returns False if no step has begun."""
        with self._lock:
            self._left = 0
            if self.profiler is None:
                self._end()
        return self.profiler is not None

    def stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """A step has ended. The program must not notice an error of ours."""
        with self._lock:
            try:
                if not self.ended.is_set():
                    self._step(optimizer)
            except Exception as error:
                self.error = error
                self._end()

    def _step(self, optimizer: Any) -> None:
        if _is_nested(sys._getframe(2)):
            return
        if self._optimizer is None:
            self._optimizer, self.profiler = optimizer, _started()
        elif optimizer is self._optimizer:  # steps of a second one, as in a GAN, are parts of a step
            self.steps += 1
            self._left -= 1
            if self._left <= 0:
                self.profiler.stop()
                self._end()
            else:
                self.profiler.step()

    def _end(self) -> None:
        ours = self._module._global_optimizer_post_hooks
        for key, hook in ours.items():
            if key != id(self) and key not in self._own:  # the program's, of these seconds
                self._own[key] = hook
        self._module._global_optimizer_post_hooks = self._own
        self._optimizer = None
        self.ended.set()


def _started() -> Any:
    from importlib import import_module

    torch, profiler = sys.modules["torch"], import_module("torch.profiler")
    activities = [profiler.ProfilerActivity.CPU]
    if torch.cuda.is_initialized():
        activities.append(profiler.ProfilerActivity.CUDA)
    # A schedule, or the trace would not name the steps.
    started: Any = profiler.profile(
        activities=activities, schedule=lambda step: profiler.ProfilerAction.RECORD, record_shapes=True
    )
    started.start()
    return started


def _is_nested(caller: Any) -> bool:
    """Whether the step is part of another step: Horovod's optimizers call the step of the user's."""
    frame = caller.f_back
    while frame is not None:
        if frame.f_code is caller.f_code:
            return True
        frame = frame.f_back
    return False


def _rank() -> int | None:
    distributed: Any = sys.modules.get("torch.distributed")
    try:
        return int(distributed.get_rank()) if distributed.is_available() and distributed.is_initialized() else None
    except Exception:
        return None
