"""Wrong settings in words: the key and the accepted values, but not the value found, as that may be a secret."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from weft_core.engine_settings import EngineSettings
from weft_core.manifest.problems import did_you_mean, one_of
from weft_core.settings import Settings

KeyPath = tuple[int | str, ...]
_ENGINES = {kind.model_fields["type"].default: kind for kind in get_args(get_args(EngineSettings)[0])}


def settings_problems(error: ValidationError) -> list[str]:
    """One line a problem: ``engines.gpu.namspace: no such key: did you mean 'namespace'?``."""
    return [_line(problem) for problem in error.errors(include_url=False)]


def _line(problem: ErrorDetails) -> str:
    path, what = _path(problem["loc"]), _words(problem)
    return f"{path}.type: {what}" if problem["type"].startswith("union_tag") else f"{path}: {what}"


def _path(path: KeyPath) -> str:
    """The key as it is written: pydantic puts the type of an engine between its name and its key."""
    if _in_engine(path):
        path = (*path[:2], *path[3:])
    return ".".join(map(str, path)) or "settings"


def _in_engine(path: KeyPath) -> bool:
    return path[:1] == ("engines",) and len(path) > 2 and path[2] in _ENGINES


def _words(problem: ErrorDetails) -> str:
    context = problem.get("ctx", {})
    match problem["type"]:
        case "union_tag_invalid":
            return f"expected {one_of(_ENGINES)}, found {context['tag']!r}"
        case "union_tag_not_found":
            return f"missing, expected {one_of(_ENGINES)}"
        case "extra_forbidden":
            accepted = _keys(problem["loc"][:-1])
            hint = did_you_mean(str(problem["loc"][-1]), accepted)
            return f"no such key{hint or ('; there are: ' + ', '.join(sorted(accepted)))}"
        case "missing":
            return "missing"
        case "value_error":
            return str(context["error"])
        case _:
            return problem["msg"]


def _keys(path: KeyPath) -> list[str]:
    """The keys of the section at ``path``."""
    found: Any = Settings
    if _in_engine(path):
        found, path = _ENGINES[str(path[2])], path[3:]
    for part in path:
        if isinstance(part, str) and part in getattr(found, "model_fields", {}):
            found = found.model_fields[part].annotation
        else:  # an entry of a table or a list
            found = (get_args(found) or [None])[-1]
    return sorted(getattr(found, "model_fields", {}))
