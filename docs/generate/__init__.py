"""The generated references in ``docs/reference``: ``python -m docs.generate`` writes them, ``make docs`` does so, too.

The files are committed, so that they can be read without a build. ``tests/docs`` fails when they are out of date.
"""
