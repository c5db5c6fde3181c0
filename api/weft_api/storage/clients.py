"""Clients of users' S3 stores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from weft_api.context import Context
from weft_api.http.problems import STORE_REFUSED, Problem
from weft_api.storage.temporary_keys import opened
from weft_core.launch import S3Location
from weft_core.objects import S3Store, StoreError

_MAKING = threading.Lock()


@contextmanager
def users_store() -> Iterator[None]:
    """Around calls to a user's store: a refusal becomes a 400, because the user can mend it. Silence stays a 503."""
    try:
        yield
    except StoreError as error:
        if error.kind == "unreachable":
            raise
        raise Problem(STORE_REFUSED, str(error)) from error


def open_store(context: Context, location: S3Location) -> S3Store:
    """A client of this store. Any thread may call this: boto's default session makes one client at a time only.

    Raises:
        StoreError: the store issues no temporary keys.
    """
    location = opened(context, location)  # this may ask the store, so it holds up nobody else
    with _MAKING:
        return S3Store(location, context.outgoing)
