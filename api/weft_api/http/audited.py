"""The facts about a request for the audit trail: its route gives the action, its handlers give the actor and the
object.

``weft_api.audit`` writes the records. A route declares its action beside its path::

    @router.post("/jobs/{job_id}/halt", openapi_extra=audited("jobs.halt", "job:{job_id}"))

A route without a declaration is recorded, too, under its method and path. So no route can be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from starlette.types import Scope

from weft_core.store.models import ActorKind

AUDIT: Final = "x-weft-audit"
"""The key of a declaration in the OpenAPI document."""
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_LONGEST: Final = 300  # characters of an object's id
_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


def audited(action: str, of: str = "", *, read: bool = False, installation: bool = False) -> dict[str, Any]:
    """The argument ``openapi_extra`` of a route that is recorded.

    Args:
        action: its stable name, such as ``jobs.halt``.
        of: the object: its kind, and for an object that the path names its id, such as ``job:{job_id}``.
        read: nothing changes, so it is recorded only if the handler calls :func:`must_record`.
        installation: it concerns the installation, not the caller's project, unless the handler calls
            :func:`about_project`.
    """
    told = {"action": action, "object": of, "read": read, "installation": installation}
    return {AUDIT: {name: value for name, value in told.items() if value}}


def unaudited(why: str) -> dict[str, Any]:
    """The argument ``openapi_extra`` of a route that is not recorded although its method is one that changes things."""
    return {AUDIT: {"left_out": why}}


def socket_audit(declaration: dict[str, Any]) -> Callable[[_Endpoint], _Endpoint]:
    """Declares the action of a WebSocket, below the decorator of its route: ``@socket_audit(audited(…))``. Its name may
    have parameters of the path. A WebSocket without a declaration only reads, and is not recorded."""

    def declare(endpoint: _Endpoint) -> _Endpoint:
        endpoint.openapi_extra = declaration  # type: ignore[attr-defined]
        return endpoint

    return declare


@dataclass
class Noted:
    """The notes of a request's handlers."""

    actor: ActorKind = ActorKind.ANONYMOUS
    user_id: str | None = None
    user: str | None = None
    token_id: str | None = None
    own_project: tuple[str, str] | None = None
    """Id and name of the project that the caller is signed in to."""
    project: tuple[str, str] | None = None
    """Of the project that the request is about, if a handler has said so."""
    object: tuple[str, str] | None = None
    must: str | None = None
    """The action of a read that is recorded, if the route declares none."""


@dataclass(frozen=True)
class Action:
    """An action that is to be recorded, with its object as far as the path names it."""

    name: str
    object: tuple[str, str | None] | None
    installation: bool


_noted: ContextVar[Noted | None] = ContextVar("weft_audit_noted", default=None)


@contextmanager
def noting_actor() -> Iterator[Noted]:
    """Around one request. The threads that work on it share the notes."""
    noted = Noted()
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)


def acting(
    kind: ActorKind,
    *,
    user_id: str | None = None,
    user: str | None = None,
    token_id: str | None = None,
    project: tuple[str, str] | None = None,
) -> None:
    """Note the actor of this request. The first call counts: a request that signs in a user is an act of the caller
    from before the sign-in. Only the project may follow later."""
    noted = _noted.get()
    if noted is None:
        return
    if noted.actor is ActorKind.ANONYMOUS:
        noted.actor, noted.user_id, noted.user, noted.token_id = kind, user_id, user, token_id
    noted.own_project = noted.own_project or project


def about(kind: str, object_id: str) -> None:
    """Say which object this request is about, where its path does not name it."""
    if (noted := _noted.get()) is not None:
        noted.object = (kind, _storable(object_id))


def about_project(project_id: str, name: str) -> None:
    """Say which project this request is about, if not the one that the caller is signed in to."""
    if (noted := _noted.get()) is not None:
        noted.project = (project_id, name)


def must_record(action: str = "read") -> None:
    """Have this request recorded although it changes nothing: it reads a secret, or another project's data.

    Args:
        action: its name, if the route declares none.
    """
    if (noted := _noted.get()) is not None:
        noted.must = action


def action_of(scope: Scope, noted: Noted) -> Action | None:
    """The action of a request that a route has served; None: the request is not recorded."""
    route = scope.get("route")
    if scope["type"] == "websocket":
        told = getattr(getattr(route, "endpoint", None), "openapi_extra", {}).get(AUDIT)
        if told is None:
            return None
        name = told["action"].format_map(scope.get("path_params", {}))
        return Action(_storable(name), _object(told.get("object", ""), scope), False)
    if route is None or scope["method"] not in (getattr(route, "methods", None) or ()):
        return None  # nothing is served there
    told = (getattr(route, "openapi_extra", None) or {}).get(AUDIT, {})
    reads = told.get("read", scope["method"] in _READS)
    if "left_out" in told:
        return None
    if noted.must is None and (reads or noted.actor is ActorKind.LEARNER):  # a learner only does its job's work
        return None
    name = told.get("action") or noted.must or f"{scope['method']} {route.path}"
    return Action(name, _object(told.get("object", ""), scope), told.get("installation", False))


def _object(template: str, scope: Scope) -> tuple[str, str | None] | None:
    kind, _, path = template.partition(":")
    if not kind:
        return None
    return kind, _storable(path.format_map(scope.get("path_params", {}))) or None


def _storable(text: str) -> str:
    """Paths and bodies may hold anything, but Postgres accepts neither NUL nor halves of surrogate pairs."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()[:_LONGEST]
