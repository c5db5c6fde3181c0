"""Users, projects, members and quotas, for those who look after an installation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.models import Member, Project, Quota, User
from weft.transport.http import Transport, segment


class Users:
    """Users of the installation: for administrators, but for one's own password."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> list[User]:
        """All of them, by name."""
        return [User.from_json(one) for one in self._transport.json("GET", "/users").get("users") or []]

    def create(self, name: str, password: str | None = None, *, email: str | None = None, admin: bool = False) -> User:
        """A new one, who is a member of nothing yet. Raises Conflict when the name is taken."""
        body: dict[str, Any] = {"name": name, "admin": admin}
        body |= {key: value for key, value in (("password", password), ("email", email)) if value is not None}
        return User.from_json(self._transport.json("POST", "/users", json=body))

    def change(self, name: str, **changes: Any) -> User:
        """Change ``password`` (one's own with ``current_password``), ``disabled`` or ``admin``."""
        return User.from_json(self._transport.json("PATCH", f"/users/{segment(name)}", json=changes))


class Projects:
    """Projects, their members and quotas."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> list[Project]:
        """One's own; an administrator sees all."""
        return [Project.from_json(one) for one in self._transport.json("GET", "/projects").get("projects") or []]

    def create(self, name: str, owner: str | None = None) -> Project:
        """A new one; ``owner`` defaults to the caller. Raises Conflict when the name is taken."""
        body = {"name": name} | ({"owner": owner} if owner else {})
        return Project.from_json(self._transport.json("POST", "/projects", json=body))

    def delete(self, name: str) -> None:
        """Forget an empty one. Raises NotFound, Conflict with what is still in it."""
        self._transport.request("DELETE", f"/projects/{segment(name)}")

    def members(self, name: str) -> Sequence[Member]:
        """Owners first."""
        page = self._transport.json("GET", f"/projects/{segment(name)}/members")
        return [Member.from_json(one) for one in page.get("members") or []]

    def set_member(self, name: str, user: str, role: str) -> None:
        """Make a user ``owner``, ``editor`` or ``viewer``."""
        path = f"/projects/{segment(name)}/members/{segment(user)}"
        self._transport.request("PUT", path, json={"role": role})

    def remove_member(self, name: str, user: str) -> None:
        """Raises NotFound, Conflict for the last owner."""
        self._transport.request("DELETE", f"/projects/{segment(name)}/members/{segment(user)}")

    def quota(self, name: str) -> Quota:
        """What its running jobs may hold at once, and what they hold."""
        return Quota.from_json(self._transport.json("GET", f"/projects/{segment(name)}/quota"))

    def set_quota(self, name: str, limits: Mapping[str, float | None]) -> Quota:
        """``cpus``, ``gpus``, ``memory`` (bytes) and ``jobs``; None, or left out: no limit."""
        return Quota.from_json(self._transport.json("PUT", f"/projects/{segment(name)}/quota", json=dict(limits)))
