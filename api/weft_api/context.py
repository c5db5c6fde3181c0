"""The objects that handlers share: the context of the application, and the objects of single parts of the API."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends
from starlette.requests import HTTPConnection

from weft_core.catalogue import Catalogue
from weft_core.objects import Objects
from weft_core.outgoing import Outgoing
from weft_core.secrets import SecretBox
from weft_core.settings import Settings
from weft_core.store.database import Database
from weft_core.tracing import Tracing
from weft_core.wake import Wake

T = TypeVar("T")


@dataclass(frozen=True)
class Context:
    """The settings, and the clients of the servers that they name.

    :func:`weft_api.app.create_app` makes the context, and FastAPI hands it to handlers as :data:`Ctx`.
    """

    settings: Settings
    database: Database
    objects: Objects
    box: SecretBox
    wake: Wake
    catalogue: Catalogue
    tracing: Tracing
    _shared: dict[Shared[Any], Any] = field(default_factory=dict, init=False, repr=False)
    _making: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False)

    @property
    def outgoing(self) -> Outgoing:
        """The door for requests to addresses that users name."""
        settings = self.settings
        own = (settings.s3.endpoint, settings.s3.public_endpoint, settings.datastore.endpoint)
        return Outgoing(settings.outgoing.allow, own=filter(None, own))

    async def close(self) -> None:
        """Close the shared objects, the newest first, and then the connections that they may use."""
        for shared, made in reversed(self._shared.items()):
            await shared.close(made)
        self.tracing.close()
        self.wake.close()
        self.database.close()


class Shared(Generic[T]):
    """An object that all requests share and that one part of the API owns: a cache, a pool of threads, a connection.

    The owner declares it next to its class, ``LIVE_LOGS = Shared(LiveLogs)``, and ``LIVE_LOGS.of(context)`` is the
    object of this application. It is made when it is first asked for, and closed at shutdown.

    Args:
        make: returns the object. It must not block.
        close: closes the object; may be a coroutine function.
    """

    def __init__(
        self, make: Callable[[Context], T], close: Callable[[T], Awaitable[None] | None] | None = None
    ) -> None:
        self._make = make
        self._close = close

    def of(self, context: Context) -> T:
        with context._making:
            if self not in context._shared:
                context._shared[self] = self._make(context)
            made: T = context._shared[self]
            return made

    async def close(self, made: T) -> None:
        closing = self._close(made) if self._close else None
        if inspect.isawaitable(closing):
            await closing


async def _context(connection: HTTPConnection) -> Context:
    context: Context = connection.app.state.context
    return context


Ctx = Annotated[Context, Depends(_context)]
