"""The manifest's JSON schema, for editors that complete and check while the user types."""

from __future__ import annotations

from typing import Any

from weft_core.manifest.fields import MANIFEST


def manifest_schema() -> dict[str, Any]:
    """A JSON schema (draft 2020-12) of the manifest; what needs the server's settings is left to the server."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Weft manifest",
        "description": "What a training job is: its code, data, size and how it is started.",
    } | MANIFEST.schema()
