"""Clients of users' S3 stores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from weft_api.http.problems import STORE_REFUSED, Problem
from weft_core.launch import S3Location
from weft_core.objects import S3Store, StoreError
from weft_core.outgoing import Outgoing

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


def open_store(location: S3Location, outgoing: Outgoing) -> S3Store:
    """A client of this store. Any thread may call this: boto's default session makes one client at a time only."""
    with _MAKING:
        return S3Store(location, outgoing)
