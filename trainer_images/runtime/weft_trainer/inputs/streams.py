"""Data stores in mode stream: the list of objects that the program may read, each by its URL.

``WEFT_STREAM_DIR/<id>.jsonl`` has a line for each object, in order of key: ``{"key", "size", "etag", "url"}``.
:mod:`weft_trainer.data` reads them. URLs are signed, and valid for a week: so the program can read these objects and no
others, and never sees the credentials. Where the store's keys are temporary, the program signs the URLs itself:
``<id>.signing.json`` says with which file of keys.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from weft_trainer.stores.s3 import S3Store
from weft_trainer.stores.store import Stored

_SECONDS = 7 * 24 * 3600  # the longest that S3 allows
_RENEWED = 24 * 3600.0


def write_stream(folder: Path, name: str, store: S3Store, objects: Sequence[Stored]) -> None:
    """Write the list, and renew signed URLs daily as long as this process lives."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if store.location.ca:
        (folder / f"{name}.pem").write_text(store.location.ca)
    location = store.location
    if location.key_file:
        signing = {"key_file": location.key_file, "region": location.region or "us-east-1"}
        (folder / f"{name}.signing.json").write_text(json.dumps(signing))
        _write(folder / f"{name}.jsonl", store.unsigned, objects)
        return
    signed = partial(store.presigned, seconds=_SECONDS)
    _write(folder / f"{name}.jsonl", signed, objects)

    def renew() -> None:
        while True:
            never.wait(_RENEWED)
            _write(folder / f"{name}.jsonl", signed, objects)

    never = threading.Event()
    threading.Thread(target=renew, name="streams", daemon=True).start()


def _write(path: Path, url: Callable[[str], str], objects: Sequence[Stored]) -> None:
    draft = path.with_suffix(".new")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        for stored in objects:
            line = {"key": stored.key, "size": stored.size, "etag": stored.etag, "url": url(stored.key)}
            file.write(json.dumps(line) + "\n")
    draft.replace(path)
