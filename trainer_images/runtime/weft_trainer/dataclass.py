"""Data classes without generated code.

Python's own module writes the methods of each class as source and compiles it, and imports ``inspect`` for that. This
took a third of the processor time of an agent's start. The methods here are the same for all classes, and know the
options that agents need.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from typing import dataclass_transform
else:  # users' programs may run in a Python that is older than 3.11

    def dataclass_transform(**_: Any) -> Callable[[T], T]:
        return lambda decorated: decorated


T = TypeVar("T")

_MISSING: Any = object()
_FIELDS = "__weft_fields__"


class _Field:
    def __init__(self, default: Any, default_factory: Any, repr: bool, compare: bool) -> None:  # noqa: A002
        self.default, self.default_factory, self.repr, self.compare = default, default_factory, repr, compare

    def value(self, owner: str, name: str) -> Any:
        """For an object that is made without it."""
        if self.default_factory is not _MISSING:
            return self.default_factory()
        if self.default is _MISSING:
            raise TypeError(f"{owner}: {name} is missing")
        return self.default


def field(
    *,
    default: Any = _MISSING,
    default_factory: Any = _MISSING,
    repr: bool = True,  # noqa: A002
    compare: bool = True,
) -> Any:
    """As ``dataclasses.field``."""
    return _Field(default, default_factory, repr, compare)


@overload
def dataclass(cls: type[T], /) -> type[T]: ...
@overload
def dataclass(*, frozen: bool = False, eq: bool = True) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(field_specifiers=(field,))
def dataclass(cls: type[Any] | None = None, /, *, frozen: bool = False, eq: bool = True) -> Any:
    """As ``dataclasses.dataclass``. A subclass has the fields of its base first."""
    if cls is None:
        return lambda decorated: _made(decorated, frozen, eq)
    return _made(cls, frozen, eq)


def replace(value: T, **changes: Any) -> T:
    """As ``dataclasses.replace``."""
    return type(value)(**{name: getattr(value, name) for name in getattr(value, _FIELDS)} | changes)


def fields(cls: type[Any]) -> Collection[str]:
    """The names of a class's fields."""
    names: dict[str, _Field] = getattr(cls, _FIELDS)
    return names.keys()


def asdict(value: Any) -> dict[str, Any]:
    """The fields of a value that holds no other data classes."""
    return {name: getattr(value, name) for name in getattr(value, _FIELDS)}


def _made(cls: type[Any], frozen: bool, eq: bool) -> type[Any]:
    fields: dict[str, _Field] = dict(getattr(cls, _FIELDS, {}))
    for name, kind in cls.__dict__.get("__annotations__", {}).items():  # noqa: RUF063
        if kind.startswith("ClassVar"):
            continue
        given = cls.__dict__.get(name, _MISSING)
        told = given if isinstance(given, _Field) else _Field(given, _MISSING, repr=True, compare=True)
        fields[name] = told
        if told.default is not _MISSING:
            setattr(cls, name, told.default)
        elif given is not _MISSING:
            delattr(cls, name)
    methods: dict[str, Any] = {_FIELDS: fields, "__init__": _init, "__repr__": _repr}
    if eq:
        methods |= {"__eq__": _eq, "__hash__": _hash if frozen else None}
    if frozen:
        methods |= {"__setattr__": _set, "__delattr__": _delete}
    for name, method in methods.items():
        if name not in cls.__dict__ or (name == "__hash__" and cls.__dict__[name] is None):
            setattr(cls, name, method)
    return cls


def _init(self: Any, *given: Any, **named: Any) -> None:
    fields: dict[str, _Field] = getattr(self, _FIELDS)
    values = self.__dict__  # not attribute by attribute, which frozen classes refuse
    values.update(zip(fields, given))
    if len(given) > len(fields) or not (fields.keys() >= named.keys() and values.keys().isdisjoint(named)):
        found = ", ".join([f"{len(given)} values", *named])
        raise TypeError(f"{type(self).__name__}: found {found}, accepted: {', '.join(fields)}, each once")
    values.update(named)
    if len(values) < len(fields):
        for name, its in fields.items():
            if name not in values:
                values[name] = its.value(type(self).__name__, name)


def _compared(value: Any) -> tuple[Any, ...]:
    return tuple(getattr(value, name) for name, its in getattr(value, _FIELDS).items() if its.compare)


def _eq(self: Any, other: object) -> bool:
    return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_compared(self))


def _repr(self: Any) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name, its in getattr(self, _FIELDS).items() if its.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _set(self: Any, name: str, value: Any) -> None:
    raise AttributeError(f"{type(self).__name__}.{name} can't be changed")


def _delete(self: Any, name: str) -> None:
    raise AttributeError(f"{type(self).__name__}.{name} can't be removed")
