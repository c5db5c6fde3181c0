"""Reading a submission from a request: JSON that refers to code sent before, or multipart with the code in it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException

from weft_api.access.auth import Editor
from weft_api.context import Ctx
from weft_api.http import bodies
from weft_api.http.bodies import MIB
from weft_api.http.problems import (
    BUDGET_USED_UP,
    CODE_MISSING,
    IDEMPOTENCY_CONFLICT,
    INVALID_BUNDLE,
    INVALID_MANIFEST,
    STORE_UNAVAILABLE,
    TOO_LARGE,
    UNSUPPORTED_MEDIA,
    Problem,
    invalid,
)
from weft_api.http.spool import Spooled, spool_file
from weft_api.jobs.schemas import Keepalive, SubmitBody
from weft_core.manifest import Credentials

_MULTIPART: dict[str, Any] = {
    "type": "object",
    "required": ["manifest"],
    "properties": {
        "manifest": {"type": "string", "description": "The manifest, as YAML text or a file."},
        "code": {"type": "string", "format": "binary", "description": "The code, as a zip."},
        "set": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Values that replace the manifest's: key=value.",
        },
    },
}
SUBMISSION_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "application/json": {"schema": {"$ref": "#/components/schemas/Submission"}},
        "multipart/form-data": {"schema": _MULTIPART},
    },
}
"""The body of a submission in the OpenAPI document."""
SUBMISSION_REFUSALS = (
    INVALID_MANIFEST,
    INVALID_BUNDLE,
    CODE_MISSING,
    IDEMPOTENCY_CONFLICT,
    TOO_LARGE,
    UNSUPPORTED_MEDIA,
    STORE_UNAVAILABLE,
    BUDGET_USED_UP,
)


@dataclass(frozen=True)
class Submission:
    manifest: str | bytes
    code_sha256: str | None = None
    code: Spooled | None = None
    overrides: dict[str, str] = field(default_factory=dict)
    keepalive: Keepalive | None = None
    credentials: Mapping[tuple[str, str], Credentials] = field(default_factory=dict)
    """The credentials of the job that is submitted again, for connections without credentials."""
    trigger: Mapping[str, str] = field(default_factory=dict)
    """The variables of a schedule's job that is submitted again."""

    def digest_parts(self) -> list[Any]:
        """The parts that make two submissions the same, however they were sent."""
        text = self.manifest if isinstance(self.manifest, str) else self.manifest.decode("utf-8", "backslashreplace")
        parts = [text, self.code.sha256 if self.code else self.code_sha256, sorted(self.overrides.items())]
        return [*parts, self.keepalive.model_dump()] if self.keepalive else parts


async def read_submission(request: Request, context: Ctx, _: Editor) -> AsyncIterator[Submission]:
    """A FastAPI dependency. It reads the body after the sign-in, and discards uploaded code after the request."""
    limits = context.settings.limits
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        # JSON's escapes need room.
        yield _from_json(await bodies.read(request, 2 * limits.manifest_bytes + MIB // 16, "a submission"))
    elif kind == "multipart/form-data":
        bodies.allow(request, limits.bundle_bytes + limits.manifest_bytes + MIB, "a manifest with its code bundle")
        try:
            form = await request.form(max_files=2, max_fields=100, max_part_size=limits.manifest_bytes + 1024)
        except MultiPartException as error:
            raise invalid("body", f"not valid multipart/form-data: {error.message}") from None
        submission = await run_in_threadpool(_from_form, form, limits.manifest_bytes)
        try:
            yield submission
        finally:
            if submission.code:
                submission.code.discard()
            await form.close()
    else:
        raise Problem(
            UNSUPPORTED_MEDIA, f"found {kind or 'no Content-Type'!r}: send application/json or multipart/form-data"
        )


SubmissionParam = Annotated[Submission, Depends(read_submission)]


def _from_json(body: bytes) -> Submission:
    try:
        parsed = SubmitBody.model_validate(json.loads(body))
    except (ValueError, RecursionError) as error:
        if isinstance(error, ValidationError):
            raise RequestValidationError(
                [
                    {**detail, "loc": ("body", *detail["loc"])}
                    for detail in error.errors(include_url=False, include_context=False)
                ]
            ) from None
        raise invalid("body", "not valid JSON", accepted="a JSON object with `manifest`") from None
    return Submission(parsed.manifest, parsed.code_sha256, None, parsed.set, parsed.keepalive)


def _from_form(form: FormData, manifest_limit: int) -> Submission:
    for name in form:
        if name not in {"manifest", "code", "set"}:
            raise invalid(f"body.{name}"[:100], "an unknown field", accepted="manifest, code, set")
    manifest = form.get("manifest")
    if manifest is None:
        raise invalid("body.manifest", "missing", accepted="the manifest, as YAML text")
    text: str | bytes = manifest if isinstance(manifest, str) else manifest.file.read(manifest_limit + 1)
    overrides: dict[str, str] = {}
    for value in form.getlist("set"):
        overrides.update(parse_set([value] if isinstance(value, str) else [], "body.set"))
    code = form.get("code")
    if isinstance(code, str):
        raise invalid("body.code", "not a file", accepted="a zip, sent as a file")
    return Submission(text, None, spool_file(code.file) if isinstance(code, UploadFile) else None, overrides)


def parse_set(values: list[str], path: str) -> dict[str, str]:
    """``key=value`` strings. Raises Problem invalid_request."""
    overrides: dict[str, str] = {}
    for value in values:
        key, equals, rest = value.partition("=")
        if not equals or not key.strip():
            raise invalid(path, "not of the form key=value", found=value[:100], accepted="learners=2")
        overrides[key.strip()] = rest
    return overrides
