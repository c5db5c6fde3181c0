"""``@weft.job``: a function as a job."""

from __future__ import annotations

import functools
import inspect
import json
import os
import shlex
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from weft.errors import WeftError

if TYPE_CHECKING:
    from weft.client import Client
    from weft.profile import Server
    from weft.resources.jobs import Job

# Modules that learners import may import this one, so it imports the rest of the client only when a job is submitted.

P = ParamSpec("P")
R = TypeVar("R")

_RUNNER = ("python", "-m", "weft_trainer.function")


class RemoteFunction(Generic[P, R]):
    """A function with the decorator :func:`weft.job`. A plain call runs the function here."""

    def __init__(self, function: Callable[P, R], options: Options) -> None:
        self._function = function
        self._options = options
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def __reduce__(self) -> str:
        return self._function.__qualname__  # pickled as functions are: by name

    def remote(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Submit a job that calls the function with these arguments; returns the job, which is QUEUED.

        The folder of the function's module is sent as the code. The learner imports the module and calls the function.
        An exception fails the job, and its traceback is in the job's log. The value that the function returns is lost:
        write results to ``RESULT_DIR``.

        The server and the token are those of :class:`weft.Client`: from the environment or the profile file.

        Raises:
            WeftError: an argument is not JSON (numbers, text, booleans, None, lists, and dicts with text keys), or the
                module of the function is not a file.
            InvalidManifest: ``problems`` lists the faults of the decorator's options.
            BundleError, InvalidBundle: the code can't be packed, or the server refuses it.

        Warns:
            UserWarning: a socket, pipe or device in the folder was left out.
        """
        from weft.bundle import manifest_in, open_bundle
        from weft.script import as_yaml

        home = _home_of(self._function)
        text = as_yaml(self._options.manifest(self._function, home, self._arguments(args, kwargs)))
        client = _client()
        with open_bundle(home.folder, leave_out=manifest_in(home.folder)) as bundle:
            assert bundle is not None  # it has the module
            if bundle.warning:
                warnings.warn(bundle.warning, stacklevel=2)
            client.send_code(bundle)
            return client.jobs.submit(text, bundle.sha256)

    def _arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
        """The arguments as words of the command."""
        name = self._function.__name__
        inspect.signature(self._function).bind(*args, **kwargs)  # TypeError, as a plain call has it
        for place, value in [*enumerate(args, 1), *kwargs.items()]:
            _refuse_other_than_json(f"{name}(): argument {place}", value)
        return [json.dumps(dict(kwargs)), *([json.dumps(args)] if args else [])]


@dataclass(frozen=True)
class Options:
    """The arguments of the decorator."""

    framework: str | Mapping[str, Any] | None
    packages: Sequence[str]
    keys: Mapping[str, Any] = field(default_factory=dict)
    """Other keys of the manifest; None: not given."""

    def manifest(self, function: Callable[..., Any], home: Home, arguments: Sequence[str]) -> dict[str, Any]:
        """The manifest of one call."""
        from weft.guess import guess_framework
        from weft.script import manifest

        given = self.framework
        name = given if isinstance(given, str) else given.get("name") if given else None
        framework = name or guess_framework(home.file, home.folder)
        command = shlex.join([*_RUNNER, f"{home.module}:{function.__name__}", *arguments])
        made = manifest(function.__name__, command, framework, self.packages, self.keys)
        if isinstance(given, Mapping):
            made["framework"] |= given
        return made


@overload
def job(function: Callable[P, R], /) -> RemoteFunction[P, R]: ...
@overload
def job(
    *,
    learners: int = ...,
    framework: str | Mapping[str, Any] | None = ...,
    packages: Sequence[str] = ...,
    gpus: int | None = ...,
    cpus: float | None = ...,
    memory: str | None = ...,
    **keys: Any,
) -> Callable[[Callable[P, R]], RemoteFunction[P, R]]: ...
def job(
    function: Callable[..., Any] | None = None,
    /,
    *,
    learners: int = 1,
    framework: str | Mapping[str, Any] | None = None,
    packages: Sequence[str] = (),
    gpus: int | None = None,
    cpus: float | None = None,
    memory: str | None = None,
    **keys: Any,
) -> Any:
    """Decorate a function, so that ``function.remote(…)`` submits a job that calls it. A plain call runs it here.

    >>> @weft.job(learners=2, framework="pytorch", packages=["einops"])
    ... def train(lr=0.1): ...
    >>> job = train.remote(lr=0.3)

    The function must be at the top level of a module or script. Every learner of the job calls it, as every learner
    runs the command of a manifest. Learners import the module, so the module submits jobs only below
    ``if __name__ == "__main__":``. Learners need not have the package ``weft``.

    Args:
        learners: the number of learners.
        framework: the framework, or a mapping such as ``{"name": "pytorch", "version": "2.13"}``. Default: the
            framework that the module imports.
        packages: packages to install in addition.
        gpus: the number of GPUs of each learner.
        cpus: the number of CPUs of each learner.
        memory: the memory of each learner: ``"4Gb"``.
        keys: any other keys of the manifest: ``retries=2``, ``env={"SEED": "7"}``, ``data_stores=[…]``. ``name``:
            the job's name; default: the function's name.

    Raises:
        WeftError: the function can't be a job: it is in a class or in another function, or is a coroutine or a
            generator.
    """
    sizes = {"learners": learners, "cpus": cpus, "gpus": gpus, "memory": memory}
    options = Options(framework, packages, sizes | keys)

    def decorate(function: Callable[P, R]) -> RemoteFunction[P, R]:
        _check(function)
        return RemoteFunction(function, options)

    return decorate if function is None else decorate(function)


def _check(function: Callable[..., Any]) -> None:
    if not inspect.isfunction(function):
        raise WeftError(f"weft.job decorates a function, not {function!r}")
    if function.__qualname__ != function.__name__ or not function.__name__.isidentifier():
        raise WeftError(
            f"{function.__qualname__} can't be a job, because learners find a function by its name: move it to the top "
            "of its module"
        )
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise WeftError(
            f"{function.__name__} can't be a job: it is a coroutine or a generator, which a call only makes"
        )


@dataclass(frozen=True)
class Home:
    """The place of a function: the name of its module for learners, its file, and the folder of the code."""

    module: str
    file: Path
    folder: Path


def _home_of(function: Callable[..., Any]) -> Home:
    """Raises WeftError, BundleError."""
    from weft.script import refuse_more_than_code

    what = function.__name__
    module = sys.modules[function.__module__]
    path = getattr(module, "__file__", None)
    if not path or Path(path).suffix != ".py":
        raise WeftError(f"{what} is not in a file (a notebook?): move it to a module, and import it from there")
    spec, name = module.__spec__, module.__name__
    if getattr(spec, "_initializing", False):  # a learner that imports the module would submit the job again
        raise WeftError(f'{name} calls {what}.remote() on its import; call it below `if __name__ == "__main__":`')
    file = Path(os.path.abspath(path))
    if name == "__main__":
        name = spec.name if spec else file.stem  # `python -m package.train`, or `python train.py`
        if spec is None and "." in name:
            raise WeftError(f"{file.name} can't be imported as a module: rename it to {name.replace('.', '_')}.py")
    levels = name.count(".") + (file.stem == "__init__")
    folder = file.parents[levels]
    refuse_more_than_code(folder, file.name)
    return Home(name, file, folder)


def _refuse_other_than_json(place: str, value: Any) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise WeftError(f"{place} has the key {key!r}; the keys of a dict must be text")
            _refuse_other_than_json(f"{place}[{key!r}]", inner)
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            _refuse_other_than_json(f"{place}[{number}]", inner)
    elif not isinstance(value, str | int | float | bool | None):
        raise WeftError(
            f"{place} is {value!r:.100}, a {type(value).__name__}; accepted are numbers, text, True, False, None, "
            "lists and dicts"
        )


_lock = threading.Lock()
_clients: dict[Server, Client] = {}


def _client() -> Client:
    """The client for the server of the environment or the profile; calls of one process share its connections."""
    from weft import profile
    from weft.client import Client
    from weft.transport.http import Transport

    server = profile.resolve()
    with _lock:
        if server not in _clients:
            _clients[server] = Client(transport=Transport(server))
        return _clients[server]
