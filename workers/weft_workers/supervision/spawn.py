"""Start a program of this package that goes on when its starter dies."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import weft_core

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

SOURCES = (str(Path(__file__).resolve().parents[2]), str(Path(weft_core.__file__).resolve().parents[1]))
"""The folders of Weft's packages that supervisors import."""
# -I and -S: no site-packages, nothing of the environment's. Weft's folders come last, as others may be in them too.
_BOOT = (
    "import sys, importlib; sys.path += [sys.argv.pop(1), sys.argv.pop(1)]; "
    "importlib.import_module(sys.argv.pop(1)).main()"
)


def detached(
    module: str, arguments: Sequence[str], *, log: Path, environment: Mapping[str, str], keep: Sequence[int] = ()
) -> None:
    """Run ``module.main()`` in a session of its own, with no ties to this process; its words go to ``log``.

    The module calls :func:`leave_parent` first. ``keep`` are descriptors that it inherits: locks.
    """
    import subprocess  # only starters need it; what they start imports this module, too

    with log.open("ab") as output:
        starter = subprocess.Popen(
            [*command(module), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=dict(environment),
            pass_fds=tuple(keep),
            start_new_session=True,
        )
    starter.wait()  # until its fork, see leave_parent


def show(error: BaseException) -> None:
    """Print an error with its traceback, without the module ``traceback``: its import would slow down each start."""
    sys.excepthook(type(error), error, error.__traceback__)


def end_with(life: Callable[[], object]) -> NoReturn:
    """Do what this process was forked for, and end it: with code 0, or with code 1 and a traceback."""
    code = 1
    try:
        life()
        code = 0
    except BaseException as error:
        show(error)
    finally:
        sys.stderr.flush()
        os._exit(code)


def command(module: str) -> list[str]:
    """The command that runs ``module.main()``."""
    return [sys.executable, "-I", "-S", "-c", _BOOT, *SOURCES, module]


def show_command(words: Iterable[str]) -> None:
    """Let ``ps`` and /proc show ``words`` as the command of this process, as far as they fit where the words of its
    start lie in its memory. The kernel reads them there (man 5 proc, arg_start). It takes the text before the first NUL
    for all of it if the last byte there is none (setproctitle), and separates the words no further."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    text = b" ".join(os.fsencode(word) for word in words)[: end - start - 2]
    ctypes.memmove(start, text.ljust(end - start - 1, b"\0") + b".", end - start)


def leave_parent(keep: Sequence[int] = ()) -> None:
    """The second fork: init becomes the parent of what goes on, and the starter has no child to wait for."""
    for descriptor in keep:
        os.set_inheritable(descriptor, False)  # ours to hold, not for what we start
    if os.fork():
        os._exit(0)
    os.umask(0o077)


def default_signals(blocked: Collection[int] = ()) -> None:
    """The signal set-up of a fresh process: nothing ignored, only ``blocked`` blocked, whatever this one has."""
    for number in signal.valid_signals():
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
