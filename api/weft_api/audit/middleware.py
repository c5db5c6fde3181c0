"""Records every request that changes something, and each read that a handler wants recorded."""

from __future__ import annotations

import secrets

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft_api.access.auth import address_of
from weft_api.audit.recorder import RECORDER, Entry
from weft_api.context import Context
from weft_api.http.audited import Noted, action_of, noting_actor
from weft_api.http.problems import AUDIT_UNAVAILABLE, ProblemForm, answer


class Audited:
    """Holds an answer back until its record is stored.

    If the record can't be stored, the caller of a request that succeeded gets a 503 instead: an act without a record
    never looks like a success. With its Idempotency-Key, the request can be repeated. A refusal goes out as it is.
    """

    def __init__(self, app: ASGIApp, context: Context, form: ProblemForm) -> None:
        self._app = app
        self._recorder = RECORDER.of(context)
        self._form = form

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        began = replaced = False

        async def recorded(message: Message) -> None:
            nonlocal began, replaced
            status = _status(message)
            if status is not None and not began:
                began = True
                stored = await self._record(scope, noted, status)
                if not stored and status < 400:
                    replaced = True
                    refusal = answer(AUDIT_UNAVAILABLE, "this request took effect, but its audit record is not stored")
                    await self._form(scope, refusal)(scope, receive, send)
            if not replaced:
                await send(message)

        with noting_actor() as noted:
            try:
                await self._app(scope, receive, recorded)
            except Exception:
                if not began:  # the answer is made further out
                    await self._record(scope, noted, 500)
                raise

    async def _record(self, scope: Scope, noted: Noted, status: int) -> bool:
        action = action_of(scope, noted)
        if action is None:
            return True
        kind, object_id = noted.object or action.object or (None, None)
        project_id, project = noted.project or (not action.installation and noted.own_project) or (None, None)
        entry = Entry(
            actor=noted.actor,
            user_id=noted.user_id,
            user_name=noted.user,
            token_id=noted.token_id,
            address=address_of(HTTPConnection(scope)),
            action=action.name,
            object_kind=kind,
            object_id=object_id,
            project_id=project_id,
            project_name=project,
            status=status,
            request_id=scope.get("state", {}).get("request_id") or secrets.token_hex(8),
        )
        return await run_in_threadpool(self._recorder.record, entry)


def _status(message: Message) -> int | None:
    """The status that a message begins an answer with; of a WebSocket, 101 when it is accepted. None: begins none."""
    if message["type"] in ("http.response.start", "websocket.http.response.start"):
        status: int = message["status"]
        return status
    return {"websocket.accept": 101, "websocket.close": 403}.get(message["type"])
