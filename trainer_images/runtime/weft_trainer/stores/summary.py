"""The identity of a set of objects, for the lineage of models."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from weft_trainer.stores.store import Stored


def summary(listing: Iterable[Stored], *, etags: bool) -> dict[str, Any]:
    """Number, bytes and a SHA-256 of the objects: a line ``key<TAB>size`` for each (``key<TAB>etag<TAB>size`` with
    ``etags``), in the order of the keys' bytes. Without them it is the same as ``weft_core.store.registry.summary``."""
    ordered = sorted(listing, key=lambda stored: stored.key.encode())
    digest = hashlib.sha256()
    for stored in ordered:
        fields = (stored.key, stored.etag, str(stored.size)) if etags else (stored.key, str(stored.size))
        digest.update(("\t".join(fields) + "\n").encode())
    return {"files": len(ordered), "bytes": sum(stored.size for stored in ordered), "sha256": digest.hexdigest()}
