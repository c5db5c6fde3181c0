"""Checking code bundles and bringing them to the store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy.dialects.postgresql import insert

from weft_api.context import Context
from weft_api.http.spool import Spooled
from weft_core.bundle import BundleInfo, check_bundle
from weft_core.objects import SMALL, code_key
from weft_core.store.models import CodeBundle
from weft_core.store.scope import Scope

_FRESH = timedelta(hours=12)


def find_code(scope: Scope, sha256: str) -> CodeBundle | None:
    return scope.find(CodeBundle, CodeBundle.sha256 == sha256)


def store_code(context: Context, project_id: str, upload: Spooled) -> BundleInfo:
    """Check an upload and put it into the store; to the database it is known only by :func:`record_code`.

    Raises:
        BundleError: it is no zip that we take.
        StoreError: the store is away.
    """
    info = check_bundle(upload.path, context.settings.limits)
    if upload.size <= SMALL:  # as quick as the question whether it is there
        context.objects.put_file(code_key(project_id, upload.sha256), upload.path)
    else:
        put_code(context, project_id, upload)
    return info


def put_code(context: Context, project_id: str, upload: Spooled) -> bool:
    """Put a bundle into the store; False: it was there. Raises StoreError."""
    key = code_key(project_id, upload.sha256)
    present = context.objects.head(key)
    # Content-addressed: an object under this name has this content. (If the size differs, an upload was cut off.)
    there = present is not None and present.size == upload.size
    if present is not None and there and present.modified > datetime.now(UTC) - _FRESH:
        return False
    # An old bundle that no job uses may be removed at any moment; a new copy stays for a day.
    context.objects.put_file(key, upload.path)
    return not there


def record_code(scope: Scope, sha256: str, info: BundleInfo) -> None:
    """Make a stored bundle known; one that is known already is left as it is."""
    row = insert(CodeBundle).values(project_id=scope.project_id, sha256=sha256, size=info.size, files=info.files)
    scope.session.execute(row.on_conflict_do_nothing())
