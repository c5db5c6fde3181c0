"""``settings.md``: every setting, from the models that read them and the docstrings below their fields."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from docs.generate.docstrings import attribute_docs
from docs.generate.markdown import blocks, code, prose, table
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from weft_core.engine_settings import NodePool
from weft_core.settings import Settings
from weft_core.words import size

_INTRO = """
The API, the workers and the set-up read the same settings: from the file `weft.toml`, and from environment variables,
which take precedence. `WEFT_CONFIG` names the file; by default it is `weft.toml` in the current folder. `weft up` uses
`weft.toml` in its [home](../embedded.md#the-home), and the [chart](../helm.md) writes the file from its values. An
unknown key or a wrong value is an error at the start. Settings are read once, so restart the service after a change.

A key in a section has an environment variable with two underscores between the parts of its name:

```toml
[s3]
endpoint = "https://s3.example.org"      # WEFT_S3__ENDPOINT=https://s3.example.org

[engines.gpu]
type = "kubernetes"                      # WEFT_ENGINES__GPU__TYPE=kubernetes
egress = ["10.0.0.0/8"]                  # WEFT_ENGINES__GPU__EGRESS='["10.0.0.0/8"]'
```

In environment variables, lists and tables are written as JSON, and names of engines, profiles and identity providers
become lower-case. Sizes are in bytes and times in seconds, unless the text says otherwise.
"""
_GENERAL = "These keys stand at the top of the file, above all sections."
_ENGINES = """
Each engine is a section with a name that you choose. Manifests use that name (`engine: gpu`). `type` decides which of
the following keys the section has. Without any such section, there is one engine, `local`, of type local.
"""
_PLAIN = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "`true` or `false`",
    Path: "a path",
    Any: "any value",
}
_LIMITS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
_LARGE = 1 << 20


@dataclass(frozen=True)
class Setting:
    """One key: ``place`` holds the sections that it is in, ``("engines", "NAME")``."""

    place: tuple[str, ...]
    name: str
    field: FieldInfo
    doc: str

    @property
    def variable(self) -> str:
        return "WEFT_" + "__".join((*self.place, self.name)).upper()


@dataclass(frozen=True)
class Section:
    """Settings with a heading; those of a list's entries (``entries``) have no variables of their own."""

    heading: str
    doc: str
    settings: tuple[Setting, ...]
    level: int = 2
    entries: bool = False


def page() -> str:
    return blocks(["# Settings", _INTRO, *(_section(section) for section in sections())])


def sections() -> Iterator[Section]:
    """All sections, in the order of the settings' own fields."""
    yield Section("General", _GENERAL, tuple(_settings(Settings, ())))
    for name, field in Settings.model_fields.items():
        models = _models(field.annotation)
        place = (name, "NAME") if get_origin(field.annotation) is dict else (name,)
        if len(models) == 1:
            yield _of_model(models[0], place, f"[{'.'.join(place)}]")
            for inner, below in models[0].model_fields.items():
                if _is_section(below):
                    (nested,) = _models(below.annotation)
                    yield _of_model(nested, (*place, inner), f"[{'.'.join((*place, inner))}]", level=3)
        elif models:
            yield Section(code(f"[{'.'.join(place)}]"), _ENGINES, ())
            for model in models:
                yield _of_model(model, place, f'type = "{model.model_fields["type"].default}"', level=3)
            yield _of_model(NodePool, (*place, "autoscaling"), "[[engines.NAME.autoscaling]]", level=3, entries=True)


def _of_model(
    model: type[BaseModel], place: tuple[str, ...], heading: str, *, level: int = 2, entries: bool = False
) -> Section:
    return Section(code(heading), inspect.getdoc(model) or "", tuple(_settings(model, place)), level, entries)


def _settings(model: type[BaseModel], place: tuple[str, ...]) -> Iterator[Setting]:
    docs = attribute_docs(model)
    # An engine's type first, which decides what the others are.
    for name, field in sorted(model.model_fields.items(), key=lambda item: item[0] != "type"):
        if not _is_section(field) and (place or not _models(field.annotation)):
            yield Setting(place, name, field, docs.get(name, ""))


def _is_section(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def _section(section: Section) -> str:
    rows = [_row(setting, section.entries) for setting in section.settings]
    head = ("key", "type", "default", "meaning") if section.entries else ("key, variable", "type", "default", "meaning")
    return blocks(
        [
            f"{'#' * section.level} {section.heading}",
            section.doc if section.doc.startswith("\n") else prose(section.doc),
            table(head, rows) if rows else "",
        ]
    )


def _row(setting: Setting, entry: bool) -> tuple[str, ...]:
    key = code(setting.name) if entry else f"{code(setting.name)}<br>{code(setting.variable)}"
    return key, _type(setting.field), _default(setting), prose(setting.doc)


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models that an annotation leads to, through dicts, lists, unions and Annotated."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models(inner)]


def _type(field: FieldInfo) -> str:
    limits = [
        f"{words} {getattr(limit, name):,}"
        for limit in field.metadata
        for name, words in _LIMITS.items()
        if getattr(limit, name, None) is not None
    ]
    return ", ".join([_in_words(field.annotation), *limits])


def _in_words(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return " or ".join(_in_words(alternative) for alternative in inner if alternative is not NoneType)
    if origin is Literal:
        return ("one of: " if len(inner) > 1 else "") + ", ".join(code(f'"{word}"') for word in inner)
    if origin is list:
        return f"a list of {_several(inner[0])}"
    if origin is dict:
        return f"a table of {_several(inner[1])}"
    return "text (secret)" if annotation is SecretStr else _PLAIN.get(annotation, "a table")


def _several(annotation: Any) -> str:
    return {str: "texts", Path: "paths", float: "numbers", SecretStr: "texts (secret)", Any: "values"}.get(
        annotation, "tables"
    )


def _default(setting: Setting) -> str:
    field = setting.field
    if field.is_required() or setting.name == "type":
        return "required"
    value = field.default
    if value is PydanticUndefined or value is None:
        return ""
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, bool):
        return code(str(value).lower())
    if isinstance(value, str | Path):
        return code(f'"{value}"') if str(value) else ""
    large = isinstance(value, int) and value >= _LARGE and value % 1024 == 0
    return code(f"{value:g}" if isinstance(value, float) else str(value)) + (f" ({size(value)})" if large else "")
