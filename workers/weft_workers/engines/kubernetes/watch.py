"""The objects that a list returns, kept current by one watch, which serves all jobs of a process."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from urllib3.response import BaseHTTPResponse

from weft_core.engine import EngineUnreachable
from weft_workers.engines.kubernetes.client import Cluster, Json, Refused

_logger = logging.getLogger(__name__)

_WATCH = 50  # seconds that a watch lasts at least; then it goes on where it was
_SILENCE = 90.0  # seconds without a word after which a watch is dead: longer than it lasts
_GAP = 3.0  # seconds that a watch may be away, to be resumed
_BACKOFF = (0.2, 8.0)  # seconds, from the first failure to the longest
_TOMBSTONES = 900.0  # seconds that an object's end is remembered


class _Expired(Exception):
    """The server has forgotten what changed since our version (410): all must be listed anew."""


class Mirror:
    """Objects by uid, trimmed to what is needed of them.

    A thread lists them, then watches. A caller that reads or changes an object directly adds the answer with
    :meth:`note` and :meth:`gone`, so that this process never sees less than it has seen already. A uid that is gone
    never comes back, which makes the merge safe.

    Args:
        what: for errors and the thread's name: 'pods'.
        call: the client's list method, with its arguments and options.
        trim: keeps of an object what is needed.
        on_deleted: called with each object whose deletion the watch reported.
        accept: media types of list and watch, if only a part of the objects is needed.
        options: of the list method.
    """

    def __init__(
        self,
        cluster: Cluster,
        what: str,
        call: str,
        *args: Any,
        trim: Callable[[Json], Json],
        on_deleted: Callable[[Json], None] = lambda item: None,
        accept: tuple[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._cluster, self._what = cluster, what
        self._call, self._args, self._options = call, args, options or {}
        self._trim, self._on_deleted = trim, on_deleted
        self._accept = [{"_headers": {"Accept": media_type}} for media_type in accept] if accept else [{}, {}]
        self._changed = threading.Condition()
        self._objects: dict[str, Json] = {}
        self._noted: dict[str, float] = {}  # when a live read last returned an object
        self._dead: dict[str, float] = {}
        self._version: str | None = None  # None: to be listed
        self._away: float | None = 0.0  # since when there is no watch; None: there is one
        self._synced = False
        self._error: EngineUnreachable | None = None
        self._poke = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._response: BaseHTTPResponse | None = None

    # --- for the engine ---

    def objects(self, patience: float) -> list[Json]:
        """All of them, as of now.

        Args:
            patience: seconds to wait for the first list, or for a watch that has broken off.

        Raises:
            EngineUnreachable: the known objects are outdated.
        """
        deadline = time.monotonic() + patience
        with self._changed:
            self._start()
            while not self._current():
                self._poke.set()
                left = deadline - time.monotonic()
                if left <= 0:
                    late = f"no answer within {patience:g} s, so its {self._what} can't be watched"
                    raise self._error or self._cluster.unreachable(late)
                self._changed.wait(min(left, 0.5))
            return list(self._objects.values())

    def known(self) -> list[Json]:
        """All known objects, outdated or not."""
        with self._changed:
            return list(self._objects.values())

    def note(self, found: Iterable[Json]) -> None:
        """Add the objects of a live read, unless the watch has newer versions of them."""
        now = time.monotonic()
        with self._changed:
            for item in found:
                self._put(item)
                self._noted[_uid(item)] = now

    def gone(self, uids: Iterable[str]) -> None:
        """These do not exist any more: a live read said so."""
        with self._changed:
            for uid in uids:
                self._drop(uid)

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            thread, response = self._thread, self._response
        self._poke.set()
        if response is not None:
            response.shutdown()
        if thread is not None:
            thread.join(10)

    # --- the objects; all under the lock ---

    def _current(self) -> bool:
        return self._synced and (self._away is None or time.monotonic() - self._away < _GAP)

    def _put(self, found: Json) -> None:
        uid = _uid(found)
        there = self._objects.get(uid)
        if uid not in self._dead and (there is None or not _older(found, there)):
            self._objects[uid] = self._trim(found)

    def _drop(self, uid: str) -> None:
        self._objects.pop(uid, None)
        self._noted.pop(uid, None)
        self._dead[uid] = time.monotonic()

    # --- the thread ---

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"watch-{self._what}", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        pause = _BACKOFF[0]
        while not self._closed:
            began = time.monotonic()
            try:
                if self._version is None:
                    self._list()
                self._watch()
            except _Expired:
                self._version = None
            except EngineUnreachable as error:
                self._error = error
            except Refused as error:
                self._version = None
                self._error = self._cluster.unreachable(f"its {self._what} can't be watched: {error}")
            except Exception:
                self._version = None
                _logger.exception("watching %s failed unexpectedly", self._what)
            with self._changed:
                self._away = time.monotonic() if self._away is None else self._away
            # A watch that lasted was a good one. A caller that waits for it ends the pause.
            pause = _BACKOFF[0] if time.monotonic() - began > 5 else min(pause * 2, _BACKOFF[1])
            self._poke.wait(0 if self._closed else pause * random.uniform(0.5, 1))  # noqa: S311 - spreads load
            self._poke.clear()

    def _list(self) -> None:
        began = time.monotonic()
        try:
            found, version = self._cluster.list(self._call, *self._args, **self._accept[0], **self._options)
        except Refused as error:
            if error.status == 410:
                raise _Expired from error
            raise
        uids = {_uid(item) for item in found}
        with self._changed:
            # An object that a live read has returned since the list began may be missing in the list, but exists.
            for uid in [uid for uid in self._objects if uid not in uids and self._noted.get(uid, 0.0) < began]:
                self._end(self._objects[uid])
            for item in found:
                self._put(item)
            self._version, self._synced = version, True

    def _watch(self) -> None:
        """Follow changes until the server ends the watch."""
        response = self._cluster.stream(
            self._call,
            *self._args,
            silence=_SILENCE,
            watch=True,
            allow_watch_bookmarks=True,
            resource_version=self._version,
            timeout_seconds=random.randint(_WATCH, _WATCH + 20),  # noqa: S311
            **self._accept[1],
            **self._options,
        )
        try:
            with self._changed:
                self._response, self._away, self._error = response, None, None
                oldest = time.monotonic() - _TOMBSTONES
                self._dead = {uid: at for uid, at in self._dead.items() if at > oldest}
                self._changed.notify_all()
                if self._closed:
                    return
            for line in self._cluster.lines(response):
                if self._closed:
                    return
                self._take(_event(line, self._cluster))
        finally:
            self._response = None
            response.close()

    def _take(self, event: Mapping[str, Any]) -> None:
        kind, found = event["type"], event["object"]
        if kind == "ERROR":
            if found.get("code") == 410:
                raise _Expired
            raise Refused(found.get("code") or 0, found.get("reason") or "", found.get("message") or "unknown error")
        with self._changed:
            self._version = found["metadata"]["resourceVersion"]
            if kind == "DELETED":
                self._end(found)
            elif kind != "BOOKMARK":
                self._put(found)

    def _end(self, found: Json) -> None:
        """The list or the watch says that an object is gone; ``found`` is its last known version."""
        known_dead = _uid(found) in self._dead
        self._drop(_uid(found))
        if not known_dead:
            self._on_deleted(self._trim(found))


def _event(line: bytes, cluster: Cluster) -> Mapping[str, Any]:
    try:
        event = json.loads(line)
        return {"type": event["type"], "object": event["object"]}
    except (ValueError, TypeError, KeyError) as error:
        raise cluster.unreachable("a watch says what is no event") from error


def _uid(found: Mapping[str, Any]) -> str:
    return str(found["metadata"]["uid"])


def _older(found: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Whether the version ``found`` of an object is older than the version ``known``."""
    versions = [version["metadata"].get("resourceVersion", "") for version in (found, known)]
    return all(version.isdecimal() for version in versions) and int(versions[0]) < int(versions[1])
