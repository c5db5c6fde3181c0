"""The agent's errors and warnings, apart from those of the user's own program."""

from __future__ import annotations

import sys


class Fenced(Exception):
    """This attempt is over for the service (ended, replaced, revoked): stop everything, store nothing."""


class Stopped(Exception):
    """A stop was asked for (halt, delete, another learner failed)."""


class TrainerError(Exception):
    """The learner can't go on; the message goes to the user as it is. ``error_code`` is FfDL's, if it has one."""

    error_code = ""

    def with_code(self) -> str:
        """How the service expects a reason: 'S302 …'."""
        return f"{self.error_code} {self}" if self.error_code else str(self)


class ApiError(TrainerError):
    """The API refused a call (4xx), so to repeat it is no use."""

    def __init__(self, message: str, status: int, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class ApiAway(TrainerError):
    """The API did not answer until the deadline."""


class DataError(TrainerError):
    """Code, data, model or checkpoint can't be brought here, or results can't be stored."""


def warn(message: str) -> None:
    """Write a line into the agent's own output, for the operator of the engine."""
    print(f"weft_trainer: {message}", file=sys.stderr, flush=True)
