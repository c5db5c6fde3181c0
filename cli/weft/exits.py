"""The exit codes of the ``weft`` command; ``docs/cli.md`` and ``weft --help`` list them."""

from __future__ import annotations

from enum import IntEnum

from weft import errors


class ExitCode(IntEnum):
    OK = 0
    ERROR = 1
    USAGE = 2
    INVALID = 3
    NOT_FOUND = 4
    DENIED = 5
    UNREACHABLE = 6
    JOB_FAILED = 10
    JOB_HALTED = 11
    INTERRUPTED = 130


MEANINGS = (
    (ExitCode.OK, "success"),
    (ExitCode.ERROR, "any other error"),
    (ExitCode.USAGE, "incorrect usage of the command"),
    (ExitCode.INVALID, "invalid manifest or code"),
    (ExitCode.NOT_FOUND, "no such job, file or the like"),
    (ExitCode.DENIED, "not signed in, or not permitted"),
    (ExitCode.UNREACHABLE, "the server can't be reached, or is not Weft"),
    (ExitCode.JOB_FAILED, "the job FAILED (with --follow)"),
    (ExitCode.JOB_HALTED, "the job was HALTED (with --follow)"),
    (ExitCode.INTERRUPTED, "interrupted (Ctrl-C); the job continues"),
)

_OF_ERROR: tuple[tuple[type[errors.WeftError], ExitCode], ...] = (
    (errors.InvalidManifest, ExitCode.INVALID),
    (errors.InvalidBundle, ExitCode.INVALID),
    (errors.BundleError, ExitCode.INVALID),
    (errors.InvalidScript, ExitCode.INVALID),
    (errors.NotFound, ExitCode.NOT_FOUND),
    (errors.AuthenticationError, ExitCode.DENIED),
    (errors.PermissionDenied, ExitCode.DENIED),
    (errors.ConfigurationError, ExitCode.DENIED),
    (errors.Unavailable, ExitCode.UNREACHABLE),
    (errors.NotWeft, ExitCode.UNREACHABLE),
    (errors.JobFailed, ExitCode.JOB_FAILED),
    (errors.JobHalted, ExitCode.JOB_HALTED),
)


def exit_code_of(error: errors.WeftError) -> ExitCode:
    """The exit code of the command after an error."""
    return next((code for kind, code in _OF_ERROR if isinstance(error, kind)), ExitCode.ERROR)


def exit_code_of_state(state: str) -> ExitCode:
    """The exit code of ``--follow`` for a job's last state."""
    return {"FAILED": ExitCode.JOB_FAILED, "HALTED": ExitCode.JOB_HALTED}.get(state, ExitCode.OK)
