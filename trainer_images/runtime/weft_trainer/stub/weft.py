"""The package ``weft`` of a learner: just enough for a module that has functions with ``@weft.job``.

The folder of this file comes last in PYTHONPATH. If the environment has the real package, this module gives way to it.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from typing import Any, Callable, NoReturn

_HERE = os.path.dirname(os.path.abspath(__file__))


def job(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """A function that trains, unchanged; in a learner it is only called."""
    return _plain if function is None else _plain(function)


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    function.remote = _Absent(f"{function.__name__}.remote")  # type: ignore[attr-defined]
    return function


class _Absent:
    """A name of the real package: it can be imported, and its use raises an error with the reason."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *arguments: Any, **more: Any) -> NoReturn:
        raise RuntimeError(
            f"{self._name} is not available in a learner, which does not have the package weft. A module that learners "
            "import submits jobs only below: if __name__ == '__main__'"
        )

    def __getattr__(self, name: str) -> _Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Absent(f"{self._name}.{name}")


def __getattr__(name: str) -> _Absent:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Absent(f"weft.{name}")


def _give_way() -> None:
    path = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("weft", path)
    if spec is None or spec.loader is None or not spec.has_location:
        return
    real = importlib.util.module_from_spec(spec)
    sys.modules["weft"] = real  # `import weft` takes the final value of this entry
    spec.loader.exec_module(real)


if __name__ == "weft":
    _give_way()
