"""Places at which a process can be made to die, to fail or to be late: before and after each commit, each write to S3
and each call of an engine. Tests arm them by an environment variable; without it they do nothing.

A failpoint's name is the effect, the function that has asked for it, with its line, and the moment:
``commit weft_workers.reconcile.perform._launch:198 before``. Names are not written by hand: a new transaction has two
failpoints from the start. ``WEFT_FAILPOINTS`` holds rules ``PATTERN=ACTION``, separated by ``;``, and the first whose
pattern (of :mod:`fnmatch`) fits a name counts. The actions are ``die`` (SIGKILL), ``raise``, ``sleep(SECONDS)`` and
``note(FILE)``, which appends the name to a file.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, wraps
from typing import ParamSpec, TypeVar

VARIABLE = "WEFT_FAILPOINTS"
BEFORE, AFTER = "before", "after"
_NOT_CALLERS = {__name__, "contextlib", "weft_core.store.database", "weft_core.objects", "weft_workers.observing"}
"""Modules that pass an effect on: their own callers are the ones that ask for it."""

P = ParamSpec("P")
T = TypeVar("T")


class FailpointError(Exception):
    """Raised by a failpoint that is armed with ``raise``."""


@dataclass(frozen=True)
class Rule:
    """What a failpoint does whose name fits ``pattern``."""

    pattern: str
    action: str
    argument: str = ""


def parse(text: str) -> tuple[Rule, ...]:
    """The rules in the environment variable.

    Raises:
        ValueError: there is no such action.
    """
    rules = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        found = re.fullmatch(r"(.+?)=(?:(die|raise)|(sleep)\(([0-9.]+)\)|(note)\((.+)\))", part)
        if not found:
            raise ValueError(
                f"{VARIABLE}: {part!r} is no rule; expected PATTERN=die, PATTERN=raise, PATTERN=sleep(SECONDS) or "
                "PATTERN=note(FILE)"
            )
        rules.append(Rule(found[1], found[2] or found[3] or found[5], found[4] or found[6] or ""))
    return tuple(rules)


@cache
def _rules() -> tuple[Rule, ...]:
    return parse(os.environ.get(VARIABLE, ""))


def place(effect: str) -> str | None:
    """The name, without the moment, of the failpoints before and after an effect that the caller's caller asks for;
    None: no failpoint of this process is armed."""
    if not _rules():
        return None
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") in _NOT_CALLERS:
        frame = frame.f_back
    return f"{effect} {frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}:{frame.f_lineno}"


def reach(where: str | None, moment: str) -> None:
    """Do what the failpoint is armed with.

    Raises:
        FailpointError: it is armed with ``raise``.
    """
    if where is None:
        return
    name = f"{where} {moment}"
    rule = next((rule for rule in _rules() if fnmatchcase(name, rule.pattern)), None)
    match rule:
        case None:
            pass
        case Rule(action="die"):
            os.kill(os.getpid(), signal.SIGKILL)
        case Rule(action="raise"):
            raise FailpointError(name)
        case Rule(action="sleep"):
            time.sleep(float(rule.argument))
        case Rule(action="note"):
            with open(rule.argument, "a") as file:  # in one write: several processes may append
                file.write(name + "\n")


def around(effect: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A function that has an effect on another system, with its two failpoints."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def called(*given: P.args, **more: P.kwargs) -> T:
            where = place(effect)
            reach(where, BEFORE)
            answer = function(*given, **more)
            reach(where, AFTER)
            return answer

        return called

    return decorate
