"""``--set key=value``: values put into the tree before anything is checked."""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingType

from weft_core.manifest.problems import ManifestError, Problem
from weft_core.manifest.tree import Mapping, Node, Scalar, Sequence, describe

_STEP = re.compile(r"\.?([^.\[\]=]+)|\[([0-9]{1,4})\]")
_DEEPEST = 8
_LONGEST_VALUE = 65536


class _Refused(Exception):
    pass


def apply(root: Mapping, overrides: MappingType[str, str]) -> Mapping:
    """The tree with every override in it; ``root`` stays as it was (aliases share nodes).

    Keys are paths such as ``learners``, ``framework.command`` or ``data_stores[0].training_data.container``; the index
    after the last one adds an entry. A value is the text of a plain scalar, so an empty one means 'the default'.

    Raises:
        ManifestError: the path is malformed, or leads through a value that is neither a mapping nor a list.
    """
    problems = []
    tree: Node = root
    for key, value in overrides.items():
        try:
            tree = _put(tree, _steps(key), _leaf(key, value), key, "")
        except _Refused as refused:
            problems.append(Problem(key[:200], f"{refused} (given with --set {key[:200]})"))
    if problems:
        raise ManifestError(problems)
    assert isinstance(tree, Mapping)
    return tree


def _leaf(key: str, value: str) -> Scalar:
    if len(value) > _LONGEST_VALUE:
        raise _Refused(f"a value of {len(value):,} characters, accepted are at most {_LONGEST_VALUE:,}")
    if not all(character.isprintable() or character in "\n\t" for character in value):
        raise _Refused("a control character in the value, which is not accepted")
    return Scalar(None, value, origin=key)


def _steps(key: str) -> list[str | int]:
    steps: list[str | int] = []
    position = 0
    while position < len(key):
        match = _STEP.match(key, position)
        if not match or (position == 0 and key.startswith(".")):
            break
        steps.append(match[1] if match[1] is not None else int(match[2]))
        position = match.end()
    if position < len(key) or not steps or isinstance(steps[0], int) or len(steps) > _DEEPEST:
        raise _Refused("expected a path such as learners, framework.command or data_stores[0].training_data.container")
    return steps


def _put(node: Node | None, steps: list[str | int], leaf: Scalar, key: str, path: str) -> Node:
    """A copy of ``node`` with ``leaf`` at ``steps``; what is missing on the way is made."""
    if not steps:
        if isinstance(node, (Mapping, Sequence)):
            raise _Refused(f"{path} is {_kind(node)}: set one of its own values")
        return leaf
    step, rest = steps[0], steps[1:]
    absent = node is None or (isinstance(node, Scalar) and node.is_null)
    if isinstance(step, int):
        sequence = Sequence(None, origin=key) if absent else node
        if not isinstance(sequence, Sequence):
            raise _Refused(f"{path} is {_kind(sequence)}, not a list")
        if step > len(sequence.items):
            raise _Refused(f"{path}[{step}] can't be set: {path} has {len(sequence.items)} entries")
        items = list(sequence.items)
        items[step : step + 1] = [_put(items[step] if step < len(items) else None, rest, leaf, key, f"{path}[{step}]")]
        return Sequence(sequence.line, items, origin=sequence.origin)
    mapping = Mapping(None, origin=key) if absent else node
    if not isinstance(mapping, Mapping):
        raise _Refused(f"{path} is {_kind(mapping)}, not a mapping: {step!r} can't be set in it")
    below = f"{path}.{step}" if path else step
    value = _put(mapping.get(step), rest, leaf, key, below)
    entries = [(name, value if name.text == step else old) for name, old in mapping.entries]
    if mapping.get(step) is None:
        entries.append((Scalar(None, step, style="'", origin=key), value))
    return Mapping(mapping.line, entries, origin=mapping.origin)


def _kind(node: Node | None) -> str:
    """The kind of a node, without its text, which could be a credential."""
    return "one value" if isinstance(node, Scalar) else describe(node)
