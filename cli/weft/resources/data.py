"""Data stores and their content. Bytes go directly to and from the store, by presigned URLs."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from weft.errors import NotFound, TransferError, WeftError
from weft.models import Datastore, ObjectInfo
from weft.transport.http import Transport, new_http_client, segment
from weft.transport.transfer import Parts, Progress, download, plan, presigned, silent

DEFAULT_STORE = "default"
_FILES_AT_ONCE = 4
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Place:
    """The parts of ``DATASTORE:CONTAINER/PREFIX``. An empty container means the whole store."""

    store: str
    container: str
    prefix: str = ""

    def __str__(self) -> str:
        path = f"{self.container}/{self.prefix}" if self.prefix else self.container
        return f"{self.store}:{path}"

    @classmethod
    def parse(cls, text: str) -> Place:
        """The place of ``store:container/prefix``, ``container/prefix`` (in the store ``default``) or ``store:``.

        Raises:
            WeftError: the text has another form.
        """
        store, colon, path = text.partition(":")
        if not colon:
            store, path = DEFAULT_STORE, text
        container, _, prefix = path.partition("/")
        if not _NAME.fullmatch(store) or (path and not _NAME.fullmatch(container)):
            raise WeftError(f"{text!r} is not a place in a data store; expected DATASTORE:CONTAINER/PREFIX")
        return cls(store, container, prefix.lstrip("/"))


@dataclass(frozen=True)
class Item:
    """A file on this machine and the key of its object in the store; ``size`` in bytes."""

    path: Path
    key: str
    size: int


class Datastores:
    """The data stores that the server knows for the project."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> list[Datastore]:
        """All data stores, by name."""
        page = self._transport.json("GET", "/datastores")
        return [Datastore.from_json(store) for store in page.get("datastores") or []]

    def get(self, name: str) -> Datastore:
        """One data store.

        Raises:
            NotFound: there is no such data store.
        """
        return Datastore.from_json(self._transport.json("GET", f"/datastores/{segment(name)}"))

    def add(
        self,
        name: str,
        *,
        endpoint: str,
        user_name: str,
        password: str,
        region: str | None = None,
        session_token: str | None = None,
        ca: str | None = None,
        check: bool = True,
    ) -> Datastore:
        """Store an S3 endpoint and its credentials (access key and secret key) on the server, encrypted.

        Args:
            ca: certificates (PEM) of a private authority to trust for this store.
            check: let the server test the credentials first.

        Raises:
            Conflict: the name is taken.
            ApiError: the store refuses the credentials, or does not answer.
        """
        body: dict[str, Any] = {"name": name, "endpoint": endpoint, "user_name": user_name, "password": password}
        more = {"region": region, "session_token": session_token, "ca": ca}
        body |= {key: value for key, value in more.items() if value}
        params = None if check else {"check": False}
        return Datastore.from_json(self._transport.json("POST", "/datastores", json=body, params=params))

    def remove(self, name: str) -> None:
        """Remove a data store from the server; the content of the store stays.

        Raises:
            NotFound: there is no such data store.
        """
        self._transport.request("DELETE", f"/datastores/{segment(name)}")


class Data:
    """The content of the data stores."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._store_http: httpx.Client | None = None

    def containers(self, store: str = DEFAULT_STORE) -> list[str]:
        """The names of a store's containers (buckets)."""
        page = self._transport.json("GET", f"/datastores/{segment(store)}/objects")
        containers = page.get("containers") or []
        return [str(found["name"] if isinstance(found, dict) else found) for found in containers]

    def create(self, place: Place | str) -> None:
        """Create a container (bucket). If it exists already, this does nothing."""
        place = Place.parse(place) if isinstance(place, str) else place
        if not place.container or place.prefix:
            raise WeftError(f"{place} is not a container; expected DATASTORE:CONTAINER")
        path = f"/datastores/{segment(place.store)}/containers/{segment(place.container)}"
        self._transport.request("PUT", path)

    def objects(self, place: Place | str, *, limit: int | None = None) -> Iterator[ObjectInfo]:
        """The objects under a prefix, by key. The iteration fetches further pages when it needs them."""
        place = Place.parse(place) if isinstance(place, str) else place
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            page = self._transport.json(
                "GET",
                f"/datastores/{segment(place.store)}/objects",
                params={
                    "container": place.container,
                    "prefix": place.prefix or None,
                    "cursor": cursor,
                    "limit": 500 if left is None else min(left, 500),
                },
            )
            objects = page.get("objects") or []
            yield from (ObjectInfo.from_json(found) for found in objects[:left])
            cursor = page.get("next_cursor")
            if left is not None:
                left -= len(objects)
            if not cursor:
                return

    def plan_put(self, source: str | Path, place: Place | str) -> list[Item]:
        """The files that :meth:`put` would send, and their keys.

        The files of a folder go under the prefix. A single file goes to ``prefix/name`` if the prefix is empty or ends
        with a slash, and otherwise to the prefix itself.

        Raises:
            TransferError: the file does not exist, or the folder has no files.
        """
        place = Place.parse(place) if isinstance(place, str) else place
        source = Path(source)
        if not place.container:
            raise TransferError(f"{place} names no container; expected DATASTORE:CONTAINER/PREFIX")
        if source.is_dir():
            base = place.prefix.rstrip("/") + "/" if place.prefix else ""
            files = sorted(path for path in source.rglob("*") if path.is_file())
            if not files:
                raise TransferError(f"the folder {source} has no files")
            return [Item(path, base + path.relative_to(source).as_posix(), path.stat().st_size) for path in files]
        if not source.is_file():
            raise TransferError(f"there is no file or folder {source}")
        key = place.prefix + source.name if not place.prefix or place.prefix.endswith("/") else place.prefix
        return [Item(source, key, source.stat().st_size)]

    def put(
        self,
        source: str | Path,
        place: Place | str,
        *,
        progress: Progress = silent,
        items: Sequence[Item] | None = None,
    ) -> list[Item]:
        """Upload a file or a folder; a missing container is created.

        Args:
            progress: called with the numbers of bytes that have been sent.
            items: the result of :meth:`plan_put`, if it was called before.

        Raises:
            TransferError: a file could not be uploaded, even after retries.
            ApiError: there is no such data store, or the store refuses the request.
        """
        place = Place.parse(place) if isinstance(place, str) else place
        todo = list(items if items is not None else self.plan_put(source, place))
        # The first file goes alone: it creates the container, and shows faults before other uploads start.
        self._put_one(place, todo[0], progress)
        _in_parallel(lambda item: self._put_one(place, item, progress), todo[1:])
        return todo

    def plan_get(self, place: Place | str, target: str | Path) -> list[Item]:
        """The objects that :meth:`get` would fetch: the object whose key is the prefix, or all objects under it.

        Raises:
            NotFound: there is no such object.
            TransferError: a key leads out of the target folder.
        """
        place = Place.parse(place) if isinstance(place, str) else place
        target = Path(target)
        if not place.container:
            raise TransferError(f"{place} names no container; expected DATASTORE:CONTAINER/PREFIX")
        base = place.prefix.rstrip("/") + "/" if place.prefix else ""
        items = []
        for found in self.objects(place):
            if found.key == place.prefix and not found.key.endswith("/"):
                name = found.key.rpartition("/")[2]
                path = target / name if target.is_dir() or str(target).endswith("/") else target
                return [Item(path, found.key, found.size)]
            if found.key.startswith(base) and not found.key.endswith("/"):
                items.append(Item(_inside(target, found.key.removeprefix(base)), found.key, found.size))
        if not items:
            raise NotFound("not_found", 404, f"there is nothing at {place}")
        return items

    def get(
        self,
        place: Place | str,
        target: str | Path = ".",
        *,
        progress: Progress = silent,
        items: Sequence[Item] | None = None,
    ) -> list[Item]:
        """Download one object, or all objects under a prefix into a folder. Interrupted downloads continue.

        Args:
            progress: called with the numbers of bytes that have arrived.
            items: the result of :meth:`plan_get`, if it was called before.

        Raises:
            NotFound: there is no such object.
            TransferError: an object could not be downloaded, even after retries.
        """
        place = Place.parse(place) if isinstance(place, str) else place
        todo = list(items if items is not None else self.plan_get(place, target))
        _in_parallel(lambda item: self._get_one(place, item, progress), todo)
        return todo

    def close(self) -> None:
        """Close the connections to the stores."""
        if self._store_http is not None:
            self._store_http.close()

    @property
    def _http(self) -> httpx.Client:
        # A client of its own, because the store must not see the token.
        if self._store_http is None:
            self._store_http = new_http_client(timeout=httpx.Timeout(60.0, connect=5.0))
        return self._store_http

    def _put_one(self, place: Place, item: Item, progress: Progress) -> None:
        base = f"/datastores/{segment(place.store)}"
        body = {"container": place.container, "key": item.key, "size": item.size, "create_container": True}
        headers = {"Idempotency-Key": str(uuid.uuid4())}

        def begin() -> dict[str, Any]:
            return self._transport.json("POST", f"{base}/uploads", json=body, headers=headers)

        begun = begin()
        etags = Parts(self._http).send(item.path, plan(begun["parts"]), progress, lambda: plan(begin()["parts"]))
        if upload_id := begun.get("upload_id"):
            whole = {"container": place.container, "key": item.key, "upload_id": upload_id, "etags": etags}
            self._transport.json("POST", f"{base}/uploads:complete", json=whole)

    def _get_one(self, place: Place, item: Item, progress: Progress) -> None:
        route, body = f"/datastores/{segment(place.store)}/downloads", {"container": place.container, "key": item.key}

        def open_at(headers: Mapping[str, str]) -> AbstractContextManager[httpx.Response]:
            # A URL ends soon, so each try has its own.
            url = str(self._transport.json("POST", route, json=body)["url"])
            return presigned(self._http, url)(headers)

        download(open_at, item.path, progress)


def _inside(folder: Path, key: str) -> Path:
    parts = key.split("/")
    if ".." in parts or key.startswith("/") or "\\" in key:
        raise TransferError(f"the object {key!r} has a name that leads out of the folder {folder}")
    return folder.joinpath(*[part for part in parts if part])


def _in_parallel(work: Callable[[Item], None], items: Sequence[Item]) -> None:
    if not items:
        return
    with ThreadPoolExecutor(min(_FILES_AT_ONCE, len(items)), thread_name_prefix="weft-file") as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
