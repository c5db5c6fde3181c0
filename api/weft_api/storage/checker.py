"""Checks, at submit, that the containers of a manifest exist in users' stores."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import TypeVar

from weft_api.context import Context, Shared
from weft_api.storage.clients import open_store
from weft_api.storage.locations import OpenStore
from weft_core.launch import S3Location
from weft_core.manifest import Place
from weft_core.objects import StoreError

T = TypeVar("T")


@dataclass(frozen=True)
class NamedContainer:
    """A container that a manifest names, the path at which it does, and the store that has the container."""

    path: str  # data_stores[0].training_data
    credentials_path: str  # data_stores[0].connection
    opened: OpenStore
    place: Place


@dataclass(frozen=True)
class Refusal:
    path: str
    message: str
    found: str | None = None
    accepted: str | None = None


class Checker:
    """Asks several stores at a time, and waits for each only :attr:`PATIENCE` long."""

    PATIENCE = 5.0  # seconds; a store that takes longer counts as unreachable
    TRUST = 20.0  # seconds for which a good answer stays valid

    def __init__(self, context: Context) -> None:
        self._context = context
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="store-check")
        self._good: dict[S3Location, float] = {}

    def check(
        self, containers: Sequence[NamedContainer], until: float | None = None
    ) -> tuple[list[Refusal], list[str]]:
        """The refusals of the manifest, and warnings about stores that did not answer.

        Args:
            until: the caller waits no longer than this, by :func:`time.monotonic`.
        """
        refusals: list[Refusal] = []
        warnings: list[str] = []
        places: dict[S3Location, NamedContainer] = {}
        for container in containers:
            places.setdefault(container.opened.at(container.place.container), container)
        begun = time.monotonic()
        deadline = min(begun + self.PATIENCE, max(begun, until or math.inf))
        asked = [(container, self._pool.submit(self._ask, location)) for location, container in places.items()]
        for container, answer in asked:
            try:
                error = answer.result(max(0.0, deadline - time.monotonic()))
            except FutureTimeout:
                seconds = f"{deadline - begun:.1f}".removesuffix(".0")
                error = StoreError(f"{container.opened.endpoint} did not answer in {seconds} s", "unreachable")
            if error is None:
                continue
            if error.kind == "unreachable":
                warnings.append(f"{container.path}: not checked: {error}; the job will need it when it starts")
            elif error.kind in {"no_container", "not_found"}:
                accepted = "a container that is there (`weft data create` and `weft data put` make one)"
                refusals.append(Refusal(f"{container.path}.container", str(error), container.place.container, accepted))
            else:
                refusals.append(Refusal(container.credentials_path, str(error)))
        return refusals, warnings

    def within_patience(self, work: Callable[[], T]) -> T:
        """The result of ``work``, which asks a store. Raises StoreError, also after :attr:`PATIENCE`."""
        try:
            return self._pool.submit(work).result(self.PATIENCE)
        except FutureTimeout:
            raise StoreError(f"the store did not answer in {self.PATIENCE:.0f} s", "unreachable") from None

    def _ask(self, location: S3Location) -> StoreError | None:
        now = time.monotonic()
        if self._good.get(location, 0.0) > now:
            return None
        try:
            open_store(self._context, location).check()
        except StoreError as error:
            return error
        except ValueError:
            return StoreError(f"{location.endpoint!r} is not the URL of an S3 endpoint", "other")
        self._good = {place: until for place, until in self._good.items() if until > now}
        self._good[location] = now + self.TRUST
        return None

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


CHECKER = Shared(Checker, Checker.close)
