"""An upload of FfDL's client: ``manifest`` and ``model_definition`` in a chunked multipart body, answered within 10
s."""

from __future__ import annotations

import os
import posixpath
import re
import tempfile
import time
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import anyio
from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException

from weft_api.code.service import put_code
from weft_api.context import Context, Ctx, Shared
from weft_api.ffdl.auth import Editor
from weft_api.http.bodies import MIB, allow
from weft_api.http.problems import UNSUPPORTED_MEDIA, Problem, invalid
from weft_api.http.spool import Spooled, spool_of
from weft_api.jobs.submission import Submission
from weft_core.bundle import BundleError, BundleInfo, check_bundle, normalise_bundle
from weft_core.manifest import Manifest
from weft_core.objects import StoreError, code_key
from weft_core.settings import LimitSettings

_PATIENCE = 9.0
"""Seconds from a request's first byte to its answer. FfDL's client gives up 10 s after its call, and its message is
then misleading, so the answer must come earlier."""

_UPLOADS = Shared(
    lambda _: ThreadPoolExecutor(16, thread_name_prefix="ffdl-upload"),
    lambda pool: pool.shutdown(wait=False, cancel_futures=True),
)


async def read_upload(request: Request, context: Ctx, _: Editor) -> AsyncIterator[Upload]:
    """A FastAPI dependency, which reads the body after the caller has been identified."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        raise Problem(UNSUPPORTED_MEDIA, f"found {kind or 'no Content-Type'!r}: send multipart/form-data")
    limits = context.settings.limits
    allow(request, limits.bundle_bytes + limits.manifest_bytes + MIB, "a manifest with its model definition")
    until = request.state.began + _PATIENCE if _is_ffdls_client(request) else None
    form: FormData | None = None
    try:
        with anyio.move_on_after(None if until is None else until - time.monotonic()):
            form = await request.form(max_files=2, max_fields=10, max_part_size=limits.manifest_bytes + 1024)
    except MultiPartException as error:
        raise invalid("body", f"not valid multipart/form-data: {error.message}") from None
    if form is None:
        raise invalid(
            "body",
            f"the upload takes more than {_PATIENCE:.0f} s, and FfDL's client gives up after 10: nothing was "
            "submitted. Send less code (data belongs into a data store), or send it with the commands weft and ffdl of "
            "Weft's package, which wait",
        )
    try:
        upload = await run_in_threadpool(Upload.of, form, limits, until)
        try:
            yield upload
        finally:
            upload.let_go()
    finally:
        await form.close()


def _is_ffdls_client(request: Request) -> bool:
    """Other parts have limits of their own, or none."""
    agent = request.headers.get("user-agent", "")
    return agent.startswith("Go-http-client/") and "x-watson-userinfo" in request.headers


class Upload:
    """A submission, and the upload of its code to the store.

    If the upload takes too long, it continues in the background. A client that submits again then finds the code there.

    Args:
        until: the deadline of the answer, by :func:`time.monotonic`; None: there is no deadline.
    """

    def __init__(self, manifest: str | bytes, definition: UploadFile | None, until: float | None) -> None:
        self.submission = Submission(manifest)
        self.until = until
        self._definition = definition
        self._stored: Future[bool] | None = None
        self._info: BundleInfo | None = None

    @classmethod
    def of(cls, form: FormData, limits: LimitSettings, until: float | None) -> Upload:
        """Raises Problem."""
        manifest = form.get("manifest")
        if manifest is None:
            raise invalid("manifest", "missing: expected the manifest, as a file")
        text = manifest if isinstance(manifest, str) else manifest.file.read(limits.manifest_bytes + 1)
        definition = form.get("model_definition")
        if definition is not None and not isinstance(definition, UploadFile):
            raise invalid("model_definition", "not a file: expected a zip")
        return cls(text, definition, until)

    def start(self, context: Context, project_id: str, manifest: Manifest) -> None:
        """Begin to upload the code to the store, and check it meanwhile. Nobody can use it before it is recorded.

        Raises:
            BundleError: the code is not an acceptable zip.
        """
        if self._definition is None:
            return
        limits = context.settings.limits
        code = _normalised(self._definition, limits, manifest.framework.command)
        self.submission = replace(self.submission, code=code)
        self._stored = stored = _UPLOADS.of(context).submit(put_code, context, project_id, code)
        try:
            self._info = check_bundle(code.path, limits)
        except BundleError:
            if not stored.cancel():
                stored.add_done_callback(lambda _: _take_back(context, project_id, code, stored))
            raise

    def arrived(self, context: Context, project_id: str, code: Spooled) -> BundleInfo:
        """Wait until the code is in the store or the deadline comes. Raises StoreError."""
        assert self._stored is not None
        assert self._info is not None
        try:
            self._stored.result(None if self.until is None else max(0.0, self.until - time.monotonic()))
        except FutureTimeout:
            raise StoreError(
                "the code is here and on its way to the store, which takes too long for FfDL's client: nothing was "
                "submitted; try again in a moment",
                "unreachable",
            ) from None
        return self._info

    def let_go(self) -> None:
        """Remove the local file of the code, which is not needed once the code is in the store."""
        code = self.submission.code
        if code and self._stored:
            self._stored.add_done_callback(lambda _: code.discard())
        elif code:
            code.discard()


def _take_back(context: Context, project_id: str, code: Spooled, stored: Future[bool]) -> None:
    """Remove refused code from the store, if this upload has put it there."""
    if stored.exception() is None and stored.result():
        context.objects.delete([code_key(project_id, code.sha256)])


def _normalised(part: UploadFile, limits: LimitSettings, command: str) -> Spooled:
    handle, name = tempfile.mkstemp(prefix="weft-upload-", suffix=".zip")
    os.close(handle)
    path = Path(name)
    try:
        of_folder = re.fullmatch(r"dlaas\d+", posixpath.basename(part.filename or "")) is not None
        normalise_bundle(part.file, path, limits, of_folder=of_folder, command=command)
        return spool_of(path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


Uploaded = Annotated[Upload, Depends(read_upload)]
