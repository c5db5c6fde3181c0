"""The errors in the preparation of a data set."""

from __future__ import annotations


class DatasetError(Exception):
    """A data set can't be prepared; the text tells the user what is wrong with the source or the target."""
