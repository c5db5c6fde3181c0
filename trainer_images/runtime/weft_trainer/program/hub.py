"""Models of the Hugging Face Hub that a job brings: its libraries find them by name, without a request to the Hub."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_KINDS = ("models--", "datasets--")
_ONLINE = frozenset({"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT"})
"""Variables that decide whether libraries ask the Hub. If one is set, Weft does not set HF_HUB_OFFLINE."""
_CACHES = frozenset({"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})


def hub_defaults(pretrained: Path, given: Mapping[str, str]) -> dict[str, str]:
    """The variables of a program with a pretrained model.

    Args:
        pretrained: the model's folder, PRETRAINED_DIR.
        given: the variables of the manifest, the image and the agent.
    """
    defaults = {}
    if not given.keys() & _ONLINE:
        defaults["HF_HUB_OFFLINE"] = "1"  # or a library waits for the Hub, which many learners can't reach
    cache = find_cache(pretrained)
    if cache is not None and not given.keys() & _CACHES:
        defaults["HF_HUB_CACHE"] = str(cache)
    return defaults


def find_cache(folder: Path) -> Path | None:
    """The Hub's cache that a folder is (``HF_HUB_CACHE``) or has (``HF_HOME``); None: it is another folder."""
    for cache in (folder, folder / "hub"):
        if any((found / "snapshots").is_dir() for kind in _KINDS for found in cache.glob(f"{kind}*")):
            return cache
    return None


def is_blob(key: str) -> bool:
    """Whether a file is the second copy of a snapshot's: the cache's snapshots are links to blobs, and S3 has none."""
    parts = key.split("/")
    return any(part.startswith(_KINDS) and parts[at + 1 : at + 2] == ["blobs"] for at, part in enumerate(parts[:-2]))
