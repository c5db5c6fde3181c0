"""An upload of FfDL's client: ``manifest`` and ``model_definition`` in one multipart body, chunked, within 10 s."""

from __future__ import annotations

import os
import posixpath
import re
import tempfile
import time
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException

from weft_api.code.service import put_code
from weft_api.context import Context, Ctx
from weft_api.ffdl.auth import Editor
from weft_api.jobs.submission import Submission
from weft_api.problems import UNSUPPORTED_MEDIA, Problem, invalid
from weft_api.spool import Spooled
from weft_core.bundle import BundleInfo, normalise_bundle
from weft_core.objects import StoreError
from weft_core.settings import LimitSettings

_PATIENCE = 6.0
"""Seconds for the store to take the code, counted while the manifest's own stores are asked: FfDL's client gives up
after 10, in which it also has to send the code."""


async def read_upload(request: Request, context: Ctx, _: Editor) -> AsyncIterator[Upload]:
    """A FastAPI dependency. (Signed in first, then read.)"""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        raise Problem(UNSUPPORTED_MEDIA, f"found {kind or 'no Content-Type'!r}: send multipart/form-data")
    limits = context.settings.limits
    try:
        form = await request.form(max_files=2, max_fields=10, max_part_size=limits.manifest_bytes + 1024)
    except MultiPartException as error:
        raise invalid("body", f"not valid multipart/form-data: {error.message}") from None
    try:
        upload = await run_in_threadpool(Upload.of, form, limits)
    finally:
        await form.close()
    try:
        yield upload
    finally:
        upload.let_go()


class Upload:
    """A submission, and its code on the way to the store.

    The code goes on its way by itself when that takes too long: who sends it again then finds it there.
    """

    def __init__(self, manifest: str | bytes, code: Spooled | None, info: BundleInfo | None) -> None:
        self.submission = Submission(manifest, None, code)
        self._info = info
        self._stored: Future[None] | None = None
        self._until = 0.0

    @classmethod
    def of(cls, form: FormData, limits: LimitSettings) -> Upload:
        """Raises Problem, BundleError."""
        manifest = form.get("manifest")
        if manifest is None:
            raise invalid("manifest", "missing: expected the manifest, as a file")
        text = manifest if isinstance(manifest, str) else manifest.file.read(limits.manifest_bytes + 1)
        definition = form.get("model_definition")
        if definition is None:
            return cls(text, None, None)
        if not isinstance(definition, UploadFile):
            raise invalid("model_definition", "not a file: expected a zip")
        return cls(text, *_normalised(definition, limits))

    def start(self, context: Context, project_id: str, pool: ThreadPoolExecutor) -> None:
        """Begin to bring the code to the store."""
        code = self.submission.code
        if code is None:
            return
        self._until = time.monotonic() + _PATIENCE
        self._stored = pool.submit(put_code, context, project_id, code)
        self._stored.add_done_callback(lambda _: code.discard())

    def arrived(self, context: Context, project_id: str, code: Spooled) -> BundleInfo:
        """Wait for the code to be in the store, but not long. Raises StoreError."""
        assert self._stored is not None
        assert self._info is not None
        try:
            self._stored.result(max(0.0, self._until - time.monotonic()))
        except FutureTimeout:
            raise StoreError(
                f"the store takes more than {_PATIENCE:.0f} s for the code, which goes on its way there: nothing was "
                "submitted; try again in a moment",
                "unreachable",
            ) from None
        return self._info

    def let_go(self) -> None:
        if self.submission.code and self._stored is None:
            self.submission.code.discard()


def _normalised(part: UploadFile, limits: LimitSettings) -> tuple[Spooled, BundleInfo]:
    handle, name = tempfile.mkstemp(prefix="weft-upload-", suffix=".zip")
    os.close(handle)
    path = Path(name)
    try:
        of_folder = re.fullmatch(r"dlaas\d+", posixpath.basename(part.filename or "")) is not None
        info = normalise_bundle(part.file, path, limits, of_folder=of_folder)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return Spooled(path, info.sha256, info.size), info


Uploaded = Annotated[Upload, Depends(read_upload)]
