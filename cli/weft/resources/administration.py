"""Users, projects, members, quotas and shares, for administrators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.models import Caps, Member, Project, Quota, Retention, Share, User
from weft.transport.http import Transport, segment


class Users:
    """Users of the installation. Only administrators may use this, except to change their own password."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> list[User]:
        """All users, by name."""
        return [User.from_json(user) for user in self._transport.json("GET", "/users").get("users") or []]

    def create(self, name: str, password: str | None = None, *, email: str | None = None, admin: bool = False) -> User:
        """Create a user, who is not a member of any project yet.

        Raises:
            Conflict: the name is taken.
        """
        body: dict[str, Any] = {"name": name, "admin": admin}
        body |= {key: value for key, value in (("password", password), ("email", email)) if value is not None}
        return User.from_json(self._transport.json("POST", "/users", json=body))

    def change(self, name: str, **changes: Any) -> User:
        """Change ``password``, ``disabled`` or ``admin``; your own password also needs ``current_password``.

        ``end_tokens`` ends all tokens and sessions of the user together with the old password.
        """
        return User.from_json(self._transport.json("PATCH", f"/users/{segment(name)}", json=changes))


class Projects:
    """Projects, their members, quotas and shares."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> list[Project]:
        """The caller's projects; for administrators, all projects."""
        return [
            Project.from_json(project) for project in self._transport.json("GET", "/projects").get("projects") or []
        ]

    def create(self, name: str, owner: str | None = None, *, allow_untrusted: bool = False) -> Project:
        """Create a project; ``owner`` defaults to the caller.

        Args:
            allow_untrusted: create it although an engine does not keep jobs of different projects apart.

        Raises:
            Conflict: the name is taken, or an engine does not keep jobs apart.
        """
        body: dict[str, Any] = {"name": name} | ({"owner": owner} if owner else {})
        if allow_untrusted:
            body["allow_untrusted"] = True
        return Project.from_json(self._transport.json("POST", "/projects", json=body))

    def delete(self, name: str) -> None:
        """Delete an empty project.

        Raises:
            NotFound: there is no such project.
            Conflict: the project is not empty; the text says what is in it.
        """
        self._transport.request("DELETE", f"/projects/{segment(name)}")

    def members(self, name: str) -> Sequence[Member]:
        """The members of a project, owners first."""
        page = self._transport.json("GET", f"/projects/{segment(name)}/members")
        return [Member.from_json(member) for member in page.get("members") or []]

    def set_member(self, name: str, user: str, role: str) -> None:
        """Add a user to a project or change the user's role: ``owner``, ``editor`` or ``viewer``."""
        path = f"/projects/{segment(name)}/members/{segment(user)}"
        self._transport.request("PUT", path, json={"role": role})

    def remove_member(self, name: str, user: str) -> None:
        """Remove a user from a project.

        Raises:
            NotFound: the user is not a member.
            Conflict: the user is the last owner.
        """
        self._transport.request("DELETE", f"/projects/{segment(name)}/members/{segment(user)}")

    def quota(self, name: str) -> Quota:
        """The limits for a project's running jobs, and what these jobs use."""
        return Quota.from_json(self._transport.json("GET", f"/projects/{segment(name)}/quota"))

    def set_quota(self, name: str, limits: Mapping[str, float | None]) -> Quota:
        """Set the limits ``cpus``, ``gpus``, ``memory`` (bytes) and ``jobs``; None or a missing key means no limit."""
        return Quota.from_json(self._transport.json("PUT", f"/projects/{segment(name)}/quota", json=dict(limits)))

    def share(self, name: str) -> Share:
        """A project's part in the fair share, and what it has used of late."""
        return Share.from_json(self._transport.json("GET", f"/projects/{segment(name)}/share"))

    def set_share(
        self, name: str, weight: float = 1, guaranteed: Mapping[str, float | None] | None = None, borrow: bool = True
    ) -> Share:
        """Set a project's part in the fair share.

        Args:
            guaranteed: ``cpus``, ``gpus`` and ``memory`` (bytes) that the project can always get back; None or a
                missing key means nothing.
            borrow: whether its jobs may hold more than that.
        """
        body = {"weight": weight, "guaranteed": dict(guaranteed or {}), "borrow": borrow}
        return Share.from_json(self._transport.json("PUT", f"/projects/{segment(name)}/share", json=body))

    def retention(self, name: str) -> Retention:
        """The retention of a project, and how much was removed so far."""
        return Retention.from_json(self._transport.json("GET", f"/projects/{segment(name)}/retention"))

    def set_retention(self, name: str, keep: Mapping[str, Mapping[str, int | None] | None]) -> Retention:
        """Set the retention of a project. Workers remove the rest within minutes, and it can't be brought back.

        Args:
            keep: by kind (``logs``, ``metrics``, ``results``, ``events``, ``code``), how many ``days`` and, for the
                first three, how many ``bytes``; None or a missing limit means all. For a kind that is None or missing,
                the installation's setting holds.
        """
        body = {kind: None if limits is None else dict(limits) for kind, limits in keep.items()}
        return Retention.from_json(self._transport.json("PUT", f"/projects/{segment(name)}/retention", json=body))

    def tunnels(self, name: str) -> bool:
        """Whether the editors of a project may go into its running jobs."""
        return bool(self._transport.json("GET", f"/projects/{segment(name)}/tunnels", holds="allowed")["allowed"])

    def set_tunnels(self, name: str, allowed: bool) -> bool:
        """Set whether the editors of a project may go into its running jobs."""
        path = f"/projects/{segment(name)}/tunnels"
        return bool(self._transport.json("PUT", path, json={"allowed": allowed}, holds="allowed")["allowed"])

    def caps(self, name: str) -> Caps:
        """The caps on the members of a project."""
        return Caps.from_json(self._transport.json("GET", f"/projects/{segment(name)}/caps"))

    def set_caps(self, name: str, caps: Mapping[str, Mapping[str, float | None]]) -> Caps:
        """Set the caps by role (``editor``, ``owner``): ``priority``, ``cpus``, ``gpus``, ``memory`` (bytes) and
        ``jobs``; None or a missing key means no cap."""
        body = {role: dict(cap) for role, cap in caps.items()}
        return Caps.from_json(self._transport.json("PUT", f"/projects/{segment(name)}/caps", json=body))
