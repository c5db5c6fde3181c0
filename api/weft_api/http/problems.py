"""The list of all problems. The API's answers (RFC 9457) and the OpenAPI schemas come from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fastapi import HTTPException
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.types import Scope

ProblemForm = Callable[[Scope, JSONResponse], JSONResponse]
"""Gives an answer the form that clients of the request's path (in the ASGI scope) expect."""

MEDIA_TYPE: Final = "application/problem+json"


@dataclass(frozen=True)
class Kind:
    """A reason to refuse a request. ``code`` is stable: clients may branch on it. ``example`` is a possible detail."""

    code: str
    status: int
    title: str
    example: str
    retry_after: int | None = None  # seconds


INVALID_REQUEST = Kind("invalid_request", 400, "The request is not valid", "query.limit: 'x' is not a whole number")
INVALID_MANIFEST = Kind("invalid_manifest", 400, "The manifest is not valid", "learners: 'two' is not a whole number")
INVALID_BUNDLE = Kind("invalid_bundle", 400, "The code bundle is not valid", "this is not a zip file")
CODE_MISSING = Kind(
    "code_missing",
    400,
    "The code bundle is not here",
    "no code with this sha256: PUT it to /api/v1/code/{sha256} first",
)
STORE_REFUSED = Kind("store_refused", 400, "The data store refused", "container 'data' does not exist at http://…")
AUTHORIZATION_PENDING = Kind("authorization_pending", 400, "Not confirmed yet", "ask again in 3 s")
SLOW_DOWN = Kind("slow_down", 400, "Asked too early", "ask again in 3 s")
ACCESS_DENIED = Kind("access_denied", 400, "The sign-in was refused", "the sign-in was refused on Weft's page")
EXPIRED_TOKEN = Kind("expired_token", 400, "The sign-in has expired", "this sign-in has expired; begin another")
UNAUTHENTICATED = Kind("unauthenticated", 401, "Not signed in", "send 'Authorization: Bearer <token>'")
FORBIDDEN = Kind("forbidden", 403, "Not allowed", "this needs the role editor, the token has viewer")
BUDGET_USED_UP = Kind(
    "budget_used_up",
    403,
    "The budget is used up",
    "the budget of token 'ci' is used up: 10 of 10 GPU-hours are used",
)
CROSS_SITE = Kind(
    "cross_site", 403, "Not from the dashboard", "a change by a session's cookie needs the header X-Weft-Session: 1"
)
NOT_FOUND = Kind("not_found", 404, "Not found", "no job 'job-000000000000' in this project")
METHOD_NOT_ALLOWED = Kind("method_not_allowed", 405, "Method not allowed", "PATCH is not served here")
CONFLICT = Kind("conflict", 409, "Does not fit the present state", "the job is COMPLETED: there is nothing to halt")
EXISTS = Kind("already_exists", 409, "Exists already", "a data store named 'cos' exists already")
IDEMPOTENCY_CONFLICT = Kind(
    "idempotency_conflict", 409, "The key was used for something else", "this Idempotency-Key came with another body"
)
NO_RESULTS_YET = Kind("no_results_yet", 409, "No results yet", "the job is PROCESSING: its results come at its end")
ALREADY_GRANTED = Kind("already_granted", 409, "Already granted", "another agent holds the start grant of rank 0")
NO_GRANT = Kind(
    "no_grant", 409, "No grant", "results are stored only with a storing grant: POST /learner/storing first"
)
LOG_FULL = Kind("log_full", 409, "The job's log is full", "it has 4294967296 bytes, which is the limit")
RESULTS_GONE = Kind("results_gone", 410, "The results are gone", "nothing is left at results/job-…")
STALE_ATTEMPT = Kind("stale_attempt", 410, "The attempt is over", "this attempt has ended: stop and exit")
TOO_SLOW = Kind("too_slow", 408, "The request came too slowly", "the body did not arrive within 60 s")
TOO_LARGE = Kind("too_large", 413, "Too large", "the manifest may have 1048576 bytes")
TOO_MANY_ATTEMPTS = Kind("too_many_attempts", 429, "Too many wrong passwords", "try again in 300 seconds", 300)
TOO_MANY_SIGN_INS = Kind("too_many_sign_ins", 429, "Too many sign-ins at once", "try again in 2 seconds", 2)
UNSUPPORTED_MEDIA = Kind("unsupported_media_type", 415, "Unsupported media type", "send application/json")
TOO_MANY_REQUESTS = Kind(
    "too_many_requests",
    429,
    "Too many requests",
    "this token may make 6,000 requests a minute: try again in 1 s",
    1,
)
TOO_MANY_STREAMS = Kind("too_many_streams", 429, "Too many streams", "this token has 1,000 streams open", 5)
TOO_MANY_LINES = Kind(
    "too_many_lines", 429, "The job logs too fast", "it may log 10000 lines and 2097152 bytes a second", 1
)
NOT_SUPPORTED = Kind("not_supported", 501, "Not supported", "multipart uploads are not supported: send it with PUT")
INTERNAL = Kind("internal", 500, "Something went wrong on the server", "it is in the server's log as request 1f0c…")
STORE_UNAVAILABLE = Kind("store_unavailable", 503, "The object store does not answer", "can't reach http://…", 5)
PROVIDER_UNAVAILABLE = Kind(
    "provider_unavailable", 503, "The identity provider does not answer", "try again in a moment", 5
)
AUDIT_UNAVAILABLE = Kind(
    "audit_unavailable",
    503,
    "The request is not recorded",
    "this request took effect, but its audit record is not stored",
    2,
)
LEARNER_UNAVAILABLE = Kind(
    "learner_unavailable", 503, "The learner does not answer", "the agent of learner 1 has not opened a tunnel", 2
)
DATABASE_UNAVAILABLE = Kind("database_unavailable", 503, "The database does not answer", "try again in a moment", 2)


class FieldProblem(BaseModel):
    """A single problem in a request: its path, the value found, and the accepted values."""

    path: str
    message: str
    line: int | None = None
    column: int | None = None
    found: str | None = None
    accepted: str | None = None


class ProblemBody(BaseModel):
    """An RFC 9457 problem. ``code`` is stable."""

    model_config = ConfigDict(title="Problem")

    type: str
    title: str
    status: int
    detail: str
    code: str
    problems: list[FieldProblem] | None = None


class Problem(HTTPException):
    """Raised in a route, or below it, to answer with ``kind``.

    An HTTPException so that it also passes through FastAPI's own body reading.
    """

    def __init__(
        self,
        kind: Kind,
        detail: str,
        problems: Sequence[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(kind.status, detail, dict(headers or {}))
        self.kind = kind
        self.text = detail
        self.problems = list(problems)


def problem_body(kind: Kind, detail: str) -> ProblemBody:
    """A problem as the API's answers have it."""
    return ProblemBody(
        type=f"urn:weft:problem:{kind.code}", title=kind.title, status=kind.status, detail=clean(detail), code=kind.code
    )


def _document(kind: Kind, detail: str, problems: Sequence[FieldProblem] = ()) -> dict[str, Any]:
    body = problem_body(kind, detail).model_dump(exclude_none=True)
    if problems:
        body["problems"] = [problem.model_dump(exclude_none=True) for problem in problems]
    return body


def answer(
    kind: Kind, detail: str, problems: Sequence[FieldProblem] = (), headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """The HTTP answer for ``kind``."""
    extra = dict(headers or {})
    if kind.retry_after is not None:
        extra.setdefault("Retry-After", str(kind.retry_after))
    if kind is UNAUTHENTICATED:
        extra.setdefault("WWW-Authenticate", "Bearer")
    return JSONResponse(_document(kind, detail, problems), kind.status, extra, media_type=MEDIA_TYPE)


def clean(value: str) -> str:
    """``value`` as text that any JSON reader accepts: lone surrogates, which JSON input may contain, become escapes."""
    return value.encode("utf-8", "backslashreplace").decode()


def not_found(what: str, name: str) -> Problem:
    return Problem(NOT_FOUND, f"no {what} {name!r} in this project")


def invalid(path: str, message: str, *, found: str | None = None, accepted: str | None = None) -> Problem:
    """A refusal of one value of the request."""
    problem = FieldProblem(path=path, message=message, found=found, accepted=accepted)
    return Problem(INVALID_REQUEST, f"{path}: {message}", [problem])


def responses(*kinds: Kind) -> dict[int | str, dict[str, Any]]:
    """The argument ``responses=`` of a route that may answer with ``kinds``."""
    entries: dict[int | str, dict[str, Any]] = {}
    for kind in kinds:
        entry = entries.setdefault(
            kind.status,
            {
                "description": kind.title,
                "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}, "examples": {}}},
            },
        )
        entry["content"][MEDIA_TYPE]["examples"][kind.code] = {"value": _document(kind, kind.example)}
        if len(entry["content"][MEDIA_TYPE]["examples"]) > 1:
            entry["description"] = "; ".join(
                example["value"]["title"] for example in entry["content"][MEDIA_TYPE]["examples"].values()
            )
    return entries
