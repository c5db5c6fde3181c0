"""The findings while a manifest is read: its problems, and the places of its values."""

from __future__ import annotations

from typing import Final

from weft_core.manifest.problems import Problem
from weft_core.manifest.tree import Node, Scalar, describe


class Invalid:
    """The value that a kind returns for a node in which it has found a problem."""


INVALID: Final = Invalid()


class Findings:
    """Collects the problems of one manifest, and where its values stand."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.nodes: dict[str, Node] = {}

    def add(
        self,
        path: str,
        message: str,
        *,
        node: Node | None = None,
        found: str | None = None,
        accepted: str | None = None,
    ) -> None:
        """Note a problem; its line is ``node``'s, or that of what was read at ``path`` (or of what holds it)."""
        node = node or self._nearest(path)
        if node is not None and node.origin:
            message += f" (given with --set {node.origin})"
        line, column = (node.line, node.column) if node else (None, None)
        self.problems.append(Problem(path, message, line, found, accepted, column))

    def position(self, path: str) -> tuple[int | None, int | None]:
        """Line and column, from 1, of what was read at ``path`` (or of what holds it); None: given with ``--set``."""
        node = self._nearest(path)
        return (node.line, node.column) if node else (None, None)

    def expected(self, path: str, node: Node, accepted: str, *, hint: str = "", sensitive: bool = False) -> Invalid:
        """Note ``expected …, found …``; the value of a sensitive field is not quoted."""
        found = describe(node)
        if sensitive and isinstance(node, Scalar) and not node.is_null:
            found = "something else (not shown)"
        self.add(path, f"expected {accepted}, found {found}{hint}", node=node, found=found, accepted=accepted)
        return INVALID

    def has(self, *paths: str) -> bool:
        """A problem was noted at or below one of these paths."""
        return any(
            problem.path == path or problem.path.startswith((path + ".", path + "["))
            for path in paths
            for problem in self.problems
        )

    def _nearest(self, path: str) -> Node | None:
        while path:
            if path in self.nodes:
                return self.nodes[path]
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.nodes.get("")
