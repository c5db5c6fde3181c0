"""Processes that outlive the worker which starts them: a run's gang with its learners, and an environment's build.

The standard library only, and nothing outside this package: they start with `python -I -S` (no site-packages), in
some 30 ms, and take a few megabytes each.
"""
