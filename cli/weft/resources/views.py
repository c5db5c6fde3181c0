"""Saved views: lists of jobs under a name, for all members of the project."""

from __future__ import annotations

from weft.errors import NotFound
from weft.models import View
from weft.transport.http import Transport, segment


class Views:
    """The saved views of the token's project. Every method may raise a :class:`~weft.errors.WeftError`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> list[View]:
        """All saved views, by name."""
        return [View.from_json(view) for view in self._transport.json("GET", "/views", holds="views")["views"]]

    def get(self, name: str) -> View:
        """A saved view.

        Raises:
            NotFound: there is no view of this name.
        """
        views = self.list()
        for view in views:
            if view.name == name:
                return view
        known = ", ".join(view.name for view in views) or "none yet; save a view on the page Jobs"
        raise NotFound("not_found", 404, f"no view {name!r}: there are {known}")

    def save(self, name: str, query: str) -> View:
        """Save a view. A view of this name is replaced.

        Args:
            query: of the list's URL in the dashboard, without ``?``: ``state=FAILED&since=7d``.

        Raises:
            Conflict: the project has too many views.
        """
        return View.from_json(self._transport.json("PUT", f"/views/{segment(name)}", json={"query": query}))

    def delete(self, name: str) -> None:
        """Delete a saved view.

        Raises:
            NotFound: there is no view of this name.
        """
        self._transport.request("DELETE", f"/views/{segment(name)}")
