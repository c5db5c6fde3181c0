"""Preparing image data sets: from their published form to the layouts that training reads (``docs/data.md``).

``weft data prepare`` is the command line of this package. One module for each noun: a *source* (:mod:`imagenet`,
:mod:`folders`, :mod:`mnist`, :mod:`records`) lists its images and where their bytes are. :mod:`units` shuffles the
images into *units* of work; one process decodes and writes a unit. A finished unit is published to the *target*
(:mod:`targets`). :mod:`run` drives all of this and remembers which units are done.

The package needs the extra ``data`` (``pip install 'weft[data]'``). Only :mod:`options`, :mod:`errors` and this module
must not import any of its packages: the command line imports them before it calls :func:`require_extra`.
"""

from __future__ import annotations

import importlib.util

from weft_data.errors import DatasetError

_NEEDED = {"PIL": "pillow", "google_crc32c": "google-crc32c", "scipy": "scipy"}


def require_extra() -> None:
    """Check that the extra packages are installed.

    Raises:
        DatasetError: some are missing; the message says what to install.
    """
    missing = [package for module, package in _NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise DatasetError(
            f"`weft data prepare` needs packages for images: pip install 'weft[data]' ({', '.join(missing)} missing)"
        )
