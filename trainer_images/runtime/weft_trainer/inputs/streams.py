"""Data stores in mode stream: the list of objects that the program may read, each by a URL that is good for a week.

``WEFT_STREAM_DIR/<id>.jsonl`` has a line for each object, in order of key: ``{"key", "size", "etag", "url"}``. So the
program gets at these objects and no others, and never sees the credentials. :mod:`weft_trainer.data` reads them.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from weft_trainer.stores.s3 import S3Store
from weft_trainer.stores.store import Stored

_SECONDS = 7 * 24 * 3600  # the longest that S3 allows
_RENEWED = 24 * 3600.0


def write_stream(folder: Path, name: str, store: S3Store, objects: Sequence[Stored]) -> None:
    """Write the list, and renew it daily as long as this process lives."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if store.location.ca:
        (folder / f"{name}.pem").write_text(store.location.ca)
    _write(folder / f"{name}.jsonl", store, objects)

    def renew() -> None:
        while True:
            never.wait(_RENEWED)
            _write(folder / f"{name}.jsonl", store, objects)

    never = threading.Event()
    threading.Thread(target=renew, name="streams", daemon=True).start()


def _write(path: Path, store: S3Store, objects: Sequence[Stored]) -> None:
    draft = path.with_suffix(".new")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        for stored in objects:
            url = store.presigned(stored.key, _SECONDS)
            file.write(json.dumps({"key": stored.key, "size": stored.size, "etag": stored.etag, "url": url}) + "\n")
    draft.replace(path)
