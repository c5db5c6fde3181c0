"""Folders of data that Weft needs at run time: found in the source tree, or inside the installed wheel."""

from __future__ import annotations

from pathlib import Path

_FOLDERS = ("trainer_images", "migrations")
_PACKAGE = Path(__file__).resolve().parent


def path(name: str) -> Path:
    """The folder ``name``: ``weft_core/_bundled/<name>`` of a wheel, or the repository's own in a source tree.

    Raises:
        ValueError: ``name`` is none of the bundled folders.
        FileNotFoundError: the installation is broken: the folder is in neither place.
    """
    if name not in _FOLDERS:
        raise ValueError(f"no bundled folder {name!r}: there are {', '.join(_FOLDERS)}")
    # The wheel's comes first: a site-packages folder could have a neighbour that happens to have the same name.
    places = (_PACKAGE / "_bundled" / name, _PACKAGE.parents[1] / name)
    for place in places:
        if place.is_dir():
            return place
    raise FileNotFoundError(
        f"the folder {name} is missing from this installation of Weft; looked in {places[0].parent}"
    )
