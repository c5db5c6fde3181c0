"""What can go wrong, as exceptions; all of them are a :class:`WeftError`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.jobs import Job
    from weft.models import Problem


class WeftError(Exception):
    """The base of all errors of this library; its text is meant for a user."""


class ConfigurationError(WeftError):
    """No server is known, or the profile file is not as it should be."""


class BundleError(WeftError):
    """The code folder can't be packed, or the zip can't be sent."""


class TransferError(WeftError):
    """A file could not be uploaded or downloaded; what had arrived is kept where the message says so."""


class Unavailable(WeftError):
    """The server could not be reached, or answered that it can't serve now, also after retries."""


class NotWeft(WeftError):
    """What answers at the URL is another server, or something that stands before Weft: a proxy, a sign-in page."""


class WaitTimeout(WeftError, TimeoutError):
    """The time given to :meth:`weft.Job.wait` ran out; the job goes on."""


class ApiError(WeftError):
    """The server refused a request.

    Attributes:
        code: the server's stable word for it, such as ``invalid_manifest``.
        status: the HTTP status.
        detail: the server's sentence.
        problems: the single faults, for an invalid manifest.
    """

    def __init__(self, code: str, status: int, detail: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(detail)
        self.code = code
        self.status = status
        self.detail = detail
        self.problems = tuple(problems)


class InvalidManifest(ApiError):
    """The manifest has faults; ``problems`` names each with its line."""


class InvalidBundle(ApiError):
    """The server refused the zip of the code."""


class AuthenticationError(ApiError):
    """No token, or one that is unknown, expired or revoked."""


class PermissionDenied(ApiError):
    """The token's role does not allow this."""


class NotFound(ApiError):
    """There is no such thing in the token's project."""


class Conflict(ApiError):
    """The thing's state does not allow this (yet, or any more)."""


class AmbiguousName(WeftError):
    """A short form of a job's id or a name fits several jobs."""


class JobEnded(WeftError):
    """The base of :class:`JobFailed` and :class:`JobHalted`; ``job`` is its last state."""

    def __init__(self, job: Job) -> None:
        reason = f": {job.reason}" if job.reason else ""
        super().__init__(f"job {job.id} ({job.name}) is {job.state}{reason}")
        self.job = job


class JobFailed(JobEnded):
    """The job that was waited for FAILED."""


class JobHalted(JobEnded):
    """The job that was waited for was HALTED."""


_BY_CODE: dict[str, type[ApiError]] = {"invalid_manifest": InvalidManifest, "invalid_bundle": InvalidBundle}
_BY_STATUS: dict[int, type[ApiError]] = {
    401: AuthenticationError,
    403: PermissionDenied,
    404: NotFound,
    409: Conflict,
    410: Conflict,
}


def api_error(code: str, status: int, detail: str, problems: Sequence[Problem] = ()) -> ApiError:
    """The fitting kind of :class:`ApiError`."""
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status, ApiError)
    return kind(code, status, detail, problems)
