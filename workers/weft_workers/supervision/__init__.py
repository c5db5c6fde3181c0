"""Processes that outlive the worker which starts them: a run's gang with its learners, and an environment's build.

They import the standard library, this package and `weft_core.processes`, nothing else. They start with `python -I -S`
(no site-packages), in some 30 ms, and take a few megabytes each.
"""
