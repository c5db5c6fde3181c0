"""``python-library.md``: the public names of the package ``weft``, by inspection."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any, cast

from docs.generate.docstrings import attribute_docs, document, own_doc
from docs.generate.markdown import blocks, code, fenced, prose, table

import weft
from weft import client, errors, models
from weft.resources import account, data, metrics

_INTRO = """
`pip install weft` installs the library, which needs neither the server's packages nor a deep-learning framework.
[The library](../cli.md#the-library) shows a first program, and [Workers](../workers-api.md) explains the functions for
notebooks. `Client`, `Job`, the functions for workers, `WeftError` and the more common values are attributes of the
package `weft`. For everything else, this page names the module.
"""
_RESOURCES = "`{name}`, where `client` is a [`Client`](#client)."
_JOB = "## Functions as jobs"
_WORKERS = "## Workers for notebooks"
_VALUES = """
## Values

The server's answers are frozen dataclasses. A value that comes from a single JSON object has this object as its
attribute `raw`.
"""
_ERRORS = """
## Errors

These are in the module `weft.errors`; `weft.WeftError` is the same class as `weft.errors.WeftError`.
"""


def page() -> str:
    public = {name: getattr(weft, name) for name in weft.__all__ if name != "errors"}
    of_workers = [member for member in public.values() if member.__module__ == "weft.workers"]
    workers = [member for member in of_workers if inspect.isclass(member)]
    functions = [member for member in of_workers if inspect.isfunction(member)]
    parts = ["# The Python library", _INTRO, _class(weft.Client), _class(weft.Job)]
    parts += [_class(of, _RESOURCES.format(name=name)) for name, of in _resources()]
    parts += [_JOB, _function(weft.job), _class(weft.RemoteFunction)]
    parts += [_WORKERS, *(_function(function) for function in functions), *(_error(of) for of in workers)]
    parts += [_VALUES, *(_value(of) for of in _values())]
    parts += [_ERRORS, *(_error(of) for of in _errors())]
    return blocks(parts)


def _resources(of: object = None, path: str = "client") -> Iterator[tuple[str, type]]:
    """The resources of a client: ``client.jobs``, ``client.jobs.metrics`` and so on."""
    for name, resource in vars(of or weft.Client(transport=cast(Any, object()))).items():
        if not name.startswith("_"):
            yield f"{path}.{name}", type(resource)
            yield from _resources(resource, f"{path}.{name}")


def _values() -> list[type]:
    modules = (models, metrics, account, client, data)
    found = {of for module in modules for _, of in inspect.getmembers(module, inspect.isclass)}
    found = {of for of in found - {weft.Job} if not of.__module__.startswith("weft.transport.")}
    values = [of for of in found if dataclasses.is_dataclass(of)]
    return sorted(values, key=lambda of: of.__name__)


def _errors() -> list[type]:
    found = [of for _, of in inspect.getmembers(errors, inspect.isclass) if issubclass(of, errors.WeftError)]
    return sorted(found, key=lambda of: inspect.getsourcelines(of)[1])


# --- classes and functions -------------------------------------------------------------------------------------------


def _class(of: type, where: str = "") -> str:
    """A class with its methods."""
    ours = [base for base in of.__mro__ if base.__module__.startswith("weft.")]
    members = [_member(of, name, member) for base in ours for name, member in vars(base).items() if name[0] != "_"]
    made = fenced(_signature(vars(of)["__init__"], of.__name__), "python") if of is weft.Client else ""
    fields = _fields(of) if dataclasses.is_dataclass(of) else ""
    return blocks([f"## {code(of.__name__)}", where, made, document(own_doc(of)), fields, *members])


def _member(of: type, name: str, member: Any) -> str:
    heading = f"### {code(f'{of.__name__}.{name}')}"
    if isinstance(member, property):
        result = inspect.signature(cast(Callable[..., Any], member.fget)).return_annotation
        return blocks([heading, fenced(f"{name}: {result}", "python"), document(own_doc(member))])
    if inspect.isfunction(member):
        return blocks([heading, fenced(_signature(member), "python"), document(own_doc(member))])
    return ""


def _function(function: Callable[..., Any]) -> str:
    signature = fenced(_signature(function), "python")
    return blocks([f"### {code(function.__name__)}", signature, document(own_doc(function))])


def _value(of: type) -> str:
    where = "" if of.__name__ in weft.__all__ else f"In {code('.'.join(of.__module__.split('.')[:2]))}."
    return blocks([f"### {code(of.__name__)}", where, document(own_doc(of)), _fields(of)])


def _error(of: type) -> str:
    return blocks([f"### {code(of.__name__)}", f"A {code(of.__bases__[0].__name__)}.", document(own_doc(of))])


def _fields(of: type) -> str:
    docs = attribute_docs(of)
    rows = [
        (code(field.name), code(str(field.type)), prose(docs.get(field.name, "")))
        for field in dataclasses.fields(of)
        if not field.name.startswith("_") and field.name != "raw"
    ]
    described = any(row[2] for row in rows)
    return table(("attribute", "type", *(["meaning"] if described else [])), [row[: 2 + described] for row in rows])


def _signature(function: Callable[..., Any], name: str = "") -> str:
    """A call as a program writes it, with an argument per line if it is long."""
    signature = inspect.signature(function)
    arguments = _arguments(parameter for parameter in signature.parameters.values() if parameter.name != "self")
    result = "" if name else f" -> {signature.return_annotation}"
    line = f"{name or function.__name__}({', '.join(arguments)}){result}"
    if len(line) <= 100:
        return line
    several = "".join(f"    {argument},\n" for argument in arguments)
    return f"{name or function.__name__}(\n{several}){result}"


def _arguments(parameters: Iterator[inspect.Parameter]) -> list[str]:
    arguments, starred = [], False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            arguments.append("*")
        starred = starred or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        stars = "*" * (parameter.kind is parameter.VAR_POSITIONAL) + "**" * (parameter.kind is parameter.VAR_KEYWORD)
        arguments.append(f"{stars}{parameter.name}: {parameter.annotation}{_default(parameter)}")
    return arguments


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return ""
    return " = ..." if callable(parameter.default) else f" = {parameter.default!r}"
