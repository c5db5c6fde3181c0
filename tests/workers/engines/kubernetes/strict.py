"""Objects checked against the client's own models: every field known, every value of its type, nothing lost."""

from __future__ import annotations

import re
from typing import Any

from kubernetes import client

_PLAIN = {"str": str, "int": int, "bool": bool, "object": object}


def check(kind: str, found: Any, where: str = "") -> None:
    """Raise AssertionError where ``found`` (JSON) is no ``kind``, a model's or a plain type's name."""
    where = where or kind
    if listed := re.fullmatch(r"(?:List|list)\[(.*)\]", kind):
        assert isinstance(found, list), f"{where}: {found!r} is no list"
        for index, item in enumerate(found):
            check(listed[1], item, f"{where}[{index}]")
    elif mapped := re.fullmatch(r"(?:Dict\[|dict\()str, (.*)[\])]", kind):
        assert isinstance(found, dict), f"{where}: {found!r} is no mapping"
        for name, item in found.items():
            check(mapped[1], item, f"{where}.{name}")
    elif kind in _PLAIN:
        assert isinstance(found, _PLAIN[kind]), f"{where}: {found!r} is no {kind}"
        assert kind == "bool" or not isinstance(found, bool), f"{where}: {found!r} is no {kind}"
    else:
        _check_model(getattr(client, kind), found, where)


def _check_model(model: Any, found: Any, where: str) -> None:
    assert isinstance(found, dict), f"{where}: {found!r} is no object"
    fields = {wire: attribute for attribute, wire in model.attribute_map.items()}
    assert found.keys() <= fields.keys(), f"{where}: unknown fields {found.keys() - fields.keys()}"
    for name, value in found.items():
        check(model.openapi_types[fields[name]], value, f"{where}.{name}")
