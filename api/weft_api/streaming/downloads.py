"""Downloads: answers of any size, which end with the sign-in that asked for them."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping

import structlog
from anyio import CancelScope
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from weft_api.access.auth import Principal
from weft_api.context import Context
from weft_api.streaming.sign_ins import SIGN_INS

log = structlog.get_logger("weft.api")


class Download(StreamingResponse):
    """Sends ``content`` until ``who`` is signed out. It counts as one of the caller's streams.

    A download that is cut breaks its connection, so that no client takes its part for the whole.

    Raises:
        Problem: too_many_streams.
    """

    def __init__(
        self,
        context: Context,
        who: Principal,
        content: Iterable[str | bytes] | AsyncIterable[str | bytes],
        media_type: str,
        headers: Mapping[str, str] | None = None,
        status_code: int = 200,  # FastAPI reads this default for the OpenAPI document
    ) -> None:
        SIGN_INS.of(context).admit(who)
        super().__init__(content, status_code, headers, media_type)
        self._sign_ins = SIGN_INS.of(context)
        self._who = who

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # It may wait for a client that reads nothing, and only a cancellation ends such a wait.
        with CancelScope() as sending, self._sign_ins.watch(self._who, sending.cancel):
            await super().__call__(scope, receive, send)
        if sending.cancelled_caught:  # uvicorn closes the connection of an answer that has no end
            log.info("download cut: its sign-in has ended", path=scope["path"])
