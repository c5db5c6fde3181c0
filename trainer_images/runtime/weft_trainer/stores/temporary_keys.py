"""Temporary S3 keys, which all processes of a learner read from one file.

The agent writes the file, and renews it as long as it lives. Processes that download, and the program that streams its
data, find the newest keys there with each request. The keys open no more than the learner's own inputs and results, so
the program may have them.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from weft_trainer.errors import ApiError, Fenced, warn
from weft_trainer.reprs import repr_without
from weft_trainer.spec import LearnerSpec, S3Location, StoreKeys

FILE = "store-keys.json"
_RENEWED = 0.25
"""The share of their life after which keys are renewed. The rest is for an API that does not answer."""
_AGAIN = 15.0
"""Seconds after which keys that could not be had are asked for again."""
_LOOK = 30.0
"""Seconds between two checks of the clock: a machine that was suspended has slept through the time to renew."""


class Keys(NamedTuple):
    access_key: str
    secret_key: str
    session_token: str | None

    def __repr__(self) -> str:
        return repr_without(self, "secret_key", "session_token")


class KeyFile:
    """The keys in a file, read again when it has changed. Thread-safe."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._read: tuple[int, Keys] | None = None

    def current(self) -> Keys:
        """Raises: OSError, ValueError."""
        changed = os.stat(self._path).st_mtime_ns
        found = self._read
        if found is None or found[0] != changed:
            with open(self._path) as file:
                found = self._read = (changed, Keys(**json.load(file)))
        return found[1]


def write_keys(path: Path, keys: StoreKeys) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(
            {"access_key": keys.access_key, "secret_key": keys.secret_key, "session_token": keys.session_token}, file
        )
    draft.replace(path)


def keep_keys(
    spec: LearnerSpec, folder: Path, renew: Callable[[], StoreKeys], learn: Callable[[StoreKeys], None]
) -> LearnerSpec:
    """Write the keys of ``spec`` to a file, and renew them early as long as this process lives.

    Args:
        renew: asks the API for new keys.
        learn: is called with new keys before anybody can read them.

    Returns:
        ``spec`` with locations that name the file.
    """
    if spec.store_keys is None:
        return spec
    path = folder / FILE
    write_keys(path, spec.store_keys)
    threading.Thread(target=_renew, args=(path, spec.store_keys, renew, learn), name="store-keys", daemon=True).start()

    def named(location: S3Location | None) -> S3Location | None:
        return location._replace(key_file=str(path)) if location is not None and location.temporary else location

    return spec._replace(
        data=tuple(entry._replace(location=named(entry.location) or entry.location) for entry in spec.data),
        pretrained=named(spec.pretrained),
        results=named(spec.results),
        checkpoints=named(spec.checkpoints),
        shared_checkpoints=named(spec.shared_checkpoints),
    )


def _renew(path: Path, keys: StoreKeys, renew: Callable[[], StoreKeys], learn: Callable[[StoreKeys], None]) -> None:
    due = time.time() + keys.seconds * _RENEWED
    while True:
        if (left := due - time.time()) > 0:
            time.sleep(min(left, _LOOK))
            continue
        try:
            keys = renew()
            learn(keys)
            write_keys(path, keys)
            due = time.time() + keys.seconds * _RENEWED
        except Fenced:
            return
        except (ApiError, OSError) as error:
            warn(f"the keys of the data store can't be renewed yet: {error}")
            due = time.time() + _AGAIN
