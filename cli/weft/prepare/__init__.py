"""``weft data prepare``: image data sets as they are published, to the layouts that training reads (``docs/data.md``).

One noun a module: a *source* (:mod:`imagenet`, :mod:`folders`, :mod:`mnist`, :mod:`records`) lists its images and where
their bytes lie; the *plan* shuffles them into units of work; a *unit* is decoded and written by one process, and
*published* to the *target* once it is whole; :mod:`run` drives them and knows which are done.

Nothing here is imported by the rest of the client: it needs ``pip install 'weft[data]'``.
"""

from __future__ import annotations

import importlib.util

from weft.errors import DatasetError

_NEEDED = {"PIL": "pillow", "google_crc32c": "google-crc32c", "scipy": "scipy"}


def require_extra() -> None:
    """Raises DatasetError, saying what to install, where the extra is missing."""
    missing = [package for module, package in _NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise DatasetError(
            f"`weft data prepare` needs packages for images: pip install 'weft[data]' ({', '.join(missing)} missing)"
        )
