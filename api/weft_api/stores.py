"""Where the data stores of a manifest are, and what opens them."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from sqlalchemy.orm import Session

from weft_api.context import Shared
from weft_api.problems import STORE_REFUSED, Problem
from weft_core.launch import S3Location
from weft_core.manifest import Credentials, DataStore, Manifest, Place
from weft_core.objects import S3Store, StoreError
from weft_core.secrets import SecretBox
from weft_core.store.models import Datastore, Job, ModelVersion, Secret
from weft_core.store.scope import Scope

T = TypeVar("T")


@dataclass(frozen=True)
class Opened:
    """An S3 endpoint with the credentials to use there."""

    endpoint: str
    region: str | None
    credentials: Credentials = field(repr=False)

    def at(self, container: str, *prefix: str) -> S3Location:
        return S3Location(
            endpoint=self.endpoint,
            region=self.region,
            access_key=self.credentials.user_name,
            secret_key=self.credentials.password,
            session_token=self.credentials.session_token,
            ca=self.credentials.ca,
            container=container,
            prefix="/".join(part.strip("/") for part in prefix if part.strip("/")),
        )


class StoreGone(Exception):
    """A job names a data store, or credentials, that are not kept any more; the message is for the user."""


def seal(box: SecretBox, credentials: Credentials) -> bytes:
    """Credentials as a secret keeps them."""
    return box.encrypt(
        json.dumps(
            {
                "user_name": credentials.user_name,
                "password": credentials.password,
                "session_token": credentials.session_token,
                "ca": credentials.ca,
            }
        )
    )


def unseal(box: SecretBox, ciphertext: bytes) -> Credentials:
    kept = json.loads(box.decrypt(ciphertext))
    return Credentials(kept["user_name"], kept["password"], kept.get("session_token"), kept.get("ca"))


def credentials_name(job_id: str, data_store_id: str) -> str:
    """Name of the secret that keeps what a manifest's connection came with. No user's own secret has a slash."""
    return f"{job_id}/{data_store_id}"


def open_kept(scope: Scope, box: SecretBox, name: str) -> Opened | None:
    """The data store kept on the server under ``name``."""
    row = scope.find(Datastore, Datastore.name == name)
    secret = scope.find(Secret, Secret.id == row.secret_id) if row else None
    if row is None or secret is None:
        return None
    return Opened(row.endpoint, row.region, unseal(box, secret.ciphertext))


def open_job_store(scope: Scope, box: SecretBox, job_id: str, store: DataStore) -> Opened:
    """What a job's manifest means by ``store``. Raises StoreGone."""
    if store.datastore is not None:
        opened = open_kept(scope, box, store.datastore)
        if opened is None:
            raise StoreGone(f"the data store {store.datastore!r} (data_stores: {store.id}) has been deleted")
        return opened
    if store.connection is None:
        raise StoreGone(f"data_stores: {store.id} names no S3 store")
    secret = scope.find(Secret, Secret.name == credentials_name(job_id, store.id))
    if secret is None:
        raise StoreGone(f"the credentials of data_stores: {store.id} are gone")
    return Opened(store.connection.auth_url, store.connection.region, unseal(box, secret.ciphertext))


def results_location(session: Session, box: SecretBox, job: Job) -> S3Location | None:
    """Where the job's results go: ``<container>/<prefix>/<job id>/``; None: the installation's own store.

    Raises:
        StoreGone: it is not known any more.
    """
    results = Manifest.model_validate(job.manifest).results
    if results is None:
        return None
    store, place = results
    opened = open_job_store(Scope(session, job.project_id), box, job.id, store)
    return opened.at(place.container, place.prefix, job.id)


def version_location(scope: Scope, box: SecretBox, version: ModelVersion) -> S3Location | None:
    """Where a model version's objects are; None: in the installation's own store, under ``version.prefix``.

    Raises:
        StoreGone: its data store is not known any more.
    """
    if version.container is None:
        return None
    if version.datastore is not None:
        opened = open_kept(scope, box, version.datastore)
        if opened is None:
            raise StoreGone(f"the data store {version.datastore!r} that the model is in has been deleted")
        return opened.at(version.container, version.prefix)
    secret = scope.find(Secret, Secret.id == version.secret_id)
    if secret is None or version.endpoint is None:
        raise StoreGone("the credentials of the store that the model is in are gone")
    return Opened(version.endpoint, version.region, unseal(box, secret.ciphertext)).at(
        version.container, version.prefix
    )


def checkpoints_location(session: Session, box: SecretBox, job: Job) -> S3Location | None:
    """Where the job's checkpoints go: ``<container>/<prefix>/_checkpoints/<job id>/``; None: the installation's own
    store.

    Raises:
        StoreGone: it is not known any more.
    """
    results = Manifest.model_validate(job.manifest).results
    if results is None:
        return None
    store, place = results
    return checkpoints_in(open_job_store(Scope(session, job.project_id), box, job.id, store), place, job.id)


def checkpoints_in(opened: Opened, place: Place, job_id: str) -> S3Location:
    return opened.at(place.container, place.prefix, "_checkpoints", job_id)


@contextmanager
def users_store() -> Iterator[None]:
    """Around calls to a user's store: what it refuses is the user's to mend (400), only silence is a 503."""
    try:
        yield
    except StoreError as error:
        if error.kind == "unreachable":
            raise
        raise Problem(STORE_REFUSED, str(error)) from error


_MAKING_CLIENTS = threading.Lock()


def open_store(location: S3Location) -> S3Store:
    """A client of this store. Any thread may call this: boto's default session makes one client at a time only."""
    with _MAKING_CLIENTS:
        return S3Store(location)


@dataclass(frozen=True)
class Wanted:
    """A container that a manifest names, where it does so, and how it is opened."""

    path: str  # data_stores[0].training_data
    credentials_path: str  # data_stores[0].connection
    opened: Opened
    place: Place


@dataclass(frozen=True)
class Refusal:
    path: str
    message: str
    found: str | None = None
    accepted: str | None = None


class Checker:
    """Asks users' stores, at submit, whether what a manifest names is there: several at a time, each for so long."""

    PATIENCE = 5.0  # seconds; a store that takes longer is treated as one that is away
    TRUST = 20.0  # seconds for which a good answer is not asked for again

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="store-check")
        self._good: dict[S3Location, float] = {}

    def check(self, wanted: Sequence[Wanted], until: float | None = None) -> tuple[list[Refusal], list[str]]:
        """What is wrong with the manifest, and warnings about stores that did not answer.

        Args:
            until: who asks waits no longer than this, by :func:`time.monotonic`.
        """
        refusals: list[Refusal] = []
        warnings: list[str] = []
        places: dict[S3Location, Wanted] = {}
        for one in wanted:
            places.setdefault(one.opened.at(one.place.container), one)
        begun = time.monotonic()
        deadline = min(begun + self.PATIENCE, max(begun, until or math.inf))
        asked = [(one, self._pool.submit(self._ask, location)) for location, one in places.items()]
        for one, answer in asked:
            try:
                error = answer.result(max(0.0, deadline - time.monotonic()))
            except FutureTimeout:
                seconds = f"{deadline - begun:.1f}".removesuffix(".0")
                error = StoreError(f"{one.opened.endpoint} did not answer in {seconds} s", "unreachable")
            if error is None:
                continue
            if error.kind == "unreachable":
                warnings.append(f"{one.path}: not checked: {error}; the job will need it when it starts")
            elif error.kind in {"no_container", "not_found"}:
                accepted = "a container that is there (`weft data create` and `weft data put` make one)"
                refusals.append(Refusal(f"{one.path}.container", str(error), one.place.container, accepted))
            else:
                refusals.append(Refusal(one.credentials_path, str(error)))
        return refusals, warnings

    def within_patience(self, work: Callable[[], T]) -> T:
        """``work()``, which asks a store. Raises StoreError unreachable when it takes too long, and what it raises."""
        try:
            return self._pool.submit(work).result(self.PATIENCE)
        except FutureTimeout:
            raise StoreError(f"the store did not answer in {self.PATIENCE:.0f} s", "unreachable") from None

    def _ask(self, location: S3Location) -> StoreError | None:
        now = time.monotonic()
        if self._good.get(location, 0.0) > now:
            return None
        try:
            open_store(location).check()
        except StoreError as error:
            return error
        except ValueError:
            return StoreError(f"{location.endpoint!r} is not the URL of an S3 endpoint", "other")
        self._good = {place: until for place, until in self._good.items() if until > now}
        self._good[location] = now + self.TRUST
        return None

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


CHECKER = Shared(lambda _: Checker(), Checker.close)
