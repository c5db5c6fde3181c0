"""A process becomes an agent: by exec of the agent's command, or without, if it is a fork of a process that has loaded
the agent."""

from __future__ import annotations

import importlib
import os
import signal
import site
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from weft_workers.supervision import spawn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PACKAGE = "weft_trainer"
_INTERPRETER = os.path.realpath(sys.executable)
"""Found out here, as a sandbox does not show the links that lead to it."""
_loaded: _Loaded | None = None


class _Loaded(NamedTuple):
    folder: str
    """Of the agent's code."""
    module: Any
    """The agent's, for forks."""
    added: list[str]
    """To the path of modules, by the agent."""


def load(folder: str) -> None:
    """Load the agent whose code is in ``folder``, for forks of this process. Only the first one can be loaded.

    An agent that has no module for forks, or whose import fails, is left to an exec, which tells about the failure.
    """
    global _loaded
    if _loaded is not None or not Path(folder, _PACKAGE, "forked.py").is_file():
        return
    sys.path.insert(0, folder)  # an installation may have the package beside this one
    try:
        before = [*sys.path]
        module = importlib.import_module(f"{_PACKAGE}.forked")
        _loaded = _Loaded(folder, module, [entry for entry in sys.path if entry not in before])
    except Exception as error:
        spawn.show(error)
    finally:
        sys.path.remove(folder)


def become(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Be the agent with this command and environment, and nothing that this process was before.

    Raises:
        OSError: the command can't be executed.
    """
    python, *rest = command
    if (
        _loaded is not None
        and rest == ["-m", _PACKAGE]
        and environment.get("PYTHONPATH") == _loaded.folder
        and os.path.realpath(python) == _INTERPRETER
    ):
        _take_shape(_loaded, command, environment)
        spawn.end_with(_loaded.module.run)
    os.execve(python, list(command), environment)  # noqa: S606


def _take_shape(agent: _Loaded, command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Do what an exec of ``command`` and the start of its interpreter would have done."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with suppress(OSError):  # that of the list itself
                os.close(int(name))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # failed calls say it, too
        signal.signal(number, signal.SIG_IGN)
    # A worker that a script has started in the background ignores it, and so did this process for a while.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    spawn.show_command(command)
    os.environ.clear()
    os.environ.update(environment)
    sys.executable = command[0]
    sys._base_executable = _INTERPRETER  # type: ignore[attr-defined]
    sys.argv[:] = [str(Path(agent.folder, _PACKAGE, "__main__.py"))]
    sys.path[:] = [agent.folder, *(entry for entry in sys.path if entry not in (*spawn.SOURCES, *agent.added))]
    image = Path(command[0]).parent.parent
    if (image / "pyvenv.cfg").exists():
        sys.prefix = sys.exec_prefix = str(image)
    site.main()
    sys.path += agent.added
