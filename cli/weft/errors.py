"""The library's exceptions; all of them are a :class:`WeftError`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.models import Problem


class WeftError(Exception):
    """The base of all errors of this library. Its text is meant for users."""


class ConfigurationError(WeftError):
    """No server is known, or the profile file is invalid."""


class BundleError(WeftError):
    """The code folder can't be packed, or the zip can't be sent."""


class InvalidScript(WeftError):
    """A Slurm batch script can't become a job; the text names each directive."""


class TransferError(WeftError):
    """A file could not be uploaded or downloaded. If the message says so, the part that has arrived is kept."""


class TunnelBroken(WeftError):
    """A tunnel into a job ended before the command in it did, or the learner refused it. The text says why."""


class Unavailable(WeftError):
    """The server could not be reached or could not serve the request, even after retries."""


class NotWeft(WeftError):
    """Another server answers at the URL, or something in front of Weft does: a proxy, or a sign-in page."""


class WaitTimeout(WeftError, TimeoutError):
    """The time given to :meth:`weft.Job.wait` ran out; the job continues."""


class ApiError(WeftError):
    """The server refused a request.

    Attributes:
        code: the stable name of the error, such as ``invalid_manifest``.
        status: the HTTP status.
        detail: the server's explanation, a sentence.
        problems: the faults of an invalid manifest.
    """

    def __init__(self, code: str, status: int, detail: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(detail)
        self.code = code
        self.status = status
        self.detail = detail
        self.problems = tuple(problems)


class InvalidManifest(ApiError):
    """The manifest has faults; ``problems`` lists them with their lines."""


class InvalidBundle(ApiError):
    """The server refused the zip of the code."""


class AuthenticationError(ApiError):
    """There is no token, or the token is unknown, expired or revoked."""


class PermissionDenied(ApiError):
    """The token's role does not allow this."""


class NotFound(ApiError):
    """The token's project has no such job, model, file or the like."""


class Conflict(ApiError):
    """The state of the job, model or the like does not allow the request."""


class AmbiguousName(WeftError):
    """The beginning of an id, or a name, matches several jobs."""


class JobEnded(WeftError):
    """The base of :class:`JobFailed` and :class:`JobHalted`; ``job`` is the :class:`weft.Job` in its last state."""

    def __init__(self, job: Any) -> None:  # the module of weft.Job imports this module
        reason = f": {job.reason}" if job.reason else ""
        super().__init__(f"job {job.id} ({job.name}) is {job.state}{reason}")
        self.job = job


class JobFailed(JobEnded):
    """The job that :meth:`weft.Job.wait` waited for is FAILED."""


class JobHalted(JobEnded):
    """The job that :meth:`weft.Job.wait` waited for is HALTED."""


_BY_CODE: dict[str, type[ApiError]] = {"invalid_manifest": InvalidManifest, "invalid_bundle": InvalidBundle}
_BY_STATUS: dict[int, type[ApiError]] = {
    401: AuthenticationError,
    403: PermissionDenied,
    404: NotFound,
    409: Conflict,
    410: Conflict,
}


def api_error(code: str, status: int, detail: str, problems: Sequence[Problem] = ()) -> ApiError:
    """The subclass of :class:`ApiError` that fits the code and the status."""
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status, ApiError)
    return kind(code, status, detail, problems)
