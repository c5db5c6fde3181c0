"""The packages that a submission asks for: the files of its code that list them, read and checked."""

from __future__ import annotations

import io
import zipfile
from typing import IO, cast

from weft_api.context import Context
from weft_api.jobs.checks import Checks
from weft_api.jobs.submission import Submission
from weft_core.catalogue import Catalogue
from weft_core.manifest import Manifest
from weft_core.objects import Bucket, code_key
from weft_core.packages import PackageRequest, asks_for_packages
from weft_core.requirement_files import CodeFiles, read_code_files

_PIECE = 1 << 16


def read_package_request(
    context: Context, project_id: str, manifest: Manifest, submission: Submission, checks: Checks
) -> PackageRequest | None:
    """The request for packages of a submission whose code has been checked; None: it asks for none.

    Raises:
        Problem: invalid_manifest: a file of the code that it names is not there, or asks for what the image can't have.
        StoreError: the code can't be read.
    """
    framework = manifest.framework
    if not asks_for_packages(framework):
        return None
    sha256 = submission.code.sha256 if submission.code else submission.code_sha256
    index = context.settings.images.package_index
    if not (framework.requirements or framework.wheels):
        return PackageRequest(manifest, CodeFiles(), None, index)
    if manifest.repo is not None:  # the build's learner fetches it, and reads its files
        return PackageRequest(manifest, CodeFiles(), None, index)
    if sha256 is None:
        key = "requirements" if framework.requirements else "wheels"
        checks.add(f"framework.{key}", "names a file of the code, and no code came with the manifest")
        checks.refuse()
    code = str(sha256)
    with _open_code(context, project_id, submission, code) as bundle:
        files, problems = read_code_files(bundle, framework, code, Catalogue.load().get(framework.image))
    for problem in problems:
        checks.add(problem.path, problem.message, found=problem.found)
    checks.refuse()
    return PackageRequest(manifest, files, code, index)


def _open_code(context: Context, project_id: str, submission: Submission, sha256: str) -> zipfile.ZipFile:
    if submission.code:
        return zipfile.ZipFile(submission.code.path)
    return zipfile.ZipFile(
        cast(IO[bytes], io.BufferedReader(_Ranges(context.objects, code_key(project_id, sha256)), _PIECE))
    )


class _Ranges(io.RawIOBase):
    """An object of the store as a file to read here and there, so that a large one need not be brought as a whole."""

    def __init__(self, bucket: Bucket, key: str) -> None:
        self._bucket, self._key = bucket, key
        found = bucket.head(key)
        self._size = found.size if found else 0
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        size = min(len(buffer), self._size - self._at)
        if size <= 0:
            return 0
        piece = self._bucket.get_range(self._key, self._at, size)
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)
