"""The agent's data classes behave like Python's own."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from weft_trainer import dataclass as ours


@ours.dataclass(frozen=True)
class Place:
    """A frozen class, at the module's level, so that it can be pickled."""

    KIND: ClassVar[str] = "place"
    host: str
    secret: str = ours.field(repr=False)
    ports: tuple[int, ...] = ()
    about: dict[str, int] = ours.field(default_factory=dict, compare=False)


@ours.dataclass(frozen=True)
class Named(Place):
    name: str = ours.field(default="x")


def _pair(module: Any) -> type[Any]:
    @module.dataclass
    class Pair:
        left: int
        right: list[int] = module.field(default_factory=list)

        @property
        def total(self) -> int:
            return self.left + sum(self.right)

    return Pair


@pytest.mark.parametrize("make", [lambda: _pair(dataclasses), lambda: _pair(ours)], ids=["Python's", "ours"])
def test_both_know_defaults_equality_and_replacement(make: Callable[[], type[Any]]) -> None:
    pair = make()
    module = dataclasses if dataclasses.is_dataclass(pair) else ours
    assert pair(1) == pair(left=1, right=[])
    assert pair(1) != pair(2)
    assert pair(1) != (1, [])
    assert pair(1).right is not pair(1).right
    assert repr(pair(1, [2])).endswith("Pair(left=1, right=[2])")
    assert module.replace(pair(1, [2]), left=5).total == 7
    assert module.asdict(pair(1)) == {"left": 1, "right": []}
    assert pair.__hash__ is None
    for wrong in ({}, {"left": 1, "middle": 2}):
        with pytest.raises(TypeError):
            pair(**wrong)
    with pytest.raises(TypeError):
        pair(1, [], 2)
    with pytest.raises(TypeError):
        pair(1, left=1)


def test_frozen_classes_are_values() -> None:
    place = Place("a", "s3cret", about={"n": 1})
    assert repr(place) == "Place(host='a', ports=(), about={'n': 1})"
    assert {place, Place("a", "s3cret")} == {place}, "about does not count"
    assert pickle.loads(pickle.dumps(place)) == copy.copy(place) == place
    changes: list[Callable[[], None]] = [lambda: setattr(place, "host", "b"), lambda: delattr(place, "host")]
    for change in changes:
        with pytest.raises(AttributeError, match="host"):
            change()
    assert Named("a", "s", name="n") == Named("a", "s", (), {}, "n")
    assert Named("a", "s") != Place("a", "s")


def test_a_class_with_eq_off_is_compared_by_identity() -> None:
    @ours.dataclass(eq=False)
    class Parcel:
        batch: int

    assert Parcel(1) != Parcel(1)
    assert len({Parcel(1), Parcel(1)}) == 2
