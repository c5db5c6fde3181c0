"""The engine for this machine: a learner is a process. ``docs/local-engine.md`` describes it.

Learners outlive the worker that starts them; :mod:`weft_workers.supervision` looks after them. No security boundary:
they run as the same user as Weft itself.
"""

from weft_workers.engines.local.engine import LocalEngine

__all__ = ["LocalEngine"]
