"""Overlays: which overlay a job gets, and the job that builds it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import func, select, text

from weft_core.ids import new_id
from weft_core.manifest.models import Manifest
from weft_core.packages import BUILD_KIND, PackageRequest, build_manifest, with_pins
from weft_core.requirement_files import CodeFiles
from weft_core.store import jobs
from weft_core.store.models import Job, Overlay, OverlayState, Secret
from weft_core.store.scope import Scope
from weft_core.words import count

_FRESH = timedelta(days=7)
"""How long a request keeps the versions that it resolved to first. A rerun has them in any case."""
_MOST_KNOWN = 500
_NAMED = 8
"""Packages that an event names."""
_THERE = (OverlayState.BUILDING, OverlayState.READY)


def pack_packages(request: PackageRequest | None) -> dict[str, Any] | None:
    """The part of a package request that the row of a sweep or of a schedule keeps."""
    if request is None:
        return None
    return {
        "digest": request.files.digest,
        "lines": [list(line) for line in request.files.lines],
        "code_sha256": request.code_sha256,
        "index": request.default_index,
    }


def unpack_packages(kept: Mapping[str, Any] | None, manifest: Manifest) -> PackageRequest | None:
    """The inverse of :func:`pack_packages`, for the manifest of a job."""
    if kept is None:
        return None
    files = CodeFiles(kept["digest"], tuple((place, line) for place, line in kept["lines"]))
    return PackageRequest(manifest, files, kept["code_sha256"], kept["index"])


def attach_overlay(scope: Scope, job: Job, request: PackageRequest, repeated: Job | None = None) -> Overlay:
    """Give a new job the overlay for its request, and have it built if there is none.

    Args:
        job: inserted, with its credentials; gets the overlay and an event.
        repeated: the job that it repeats. It gets the same versions if it asks for the same packages.
    """
    _serialise(scope, request.key)
    earlier = scope.find(Overlay, Overlay.id == repeated.overlay_id) if repeated and repeated.overlay_id else None
    same = earlier if earlier is not None and earlier.key == request.key else None
    found = same if same is not None and same.state in _THERE else None
    if found is None and same is not None and same.lock is not None:
        found = _rebuild(scope, job, same)
    if found is None:
        found = _find(scope, request.key)
    if found is None:
        wanted = build_manifest(request.manifest, request.default_index, _known(scope, request.manifest))
        found = _build(scope, job, request.key, wanted, request.code_sha256)
    _attach(scope, job, found)
    return found


def renew_overlay(scope: Scope, job: Job) -> Overlay | None:
    """For a job that is opened again: have its packages built again if they are not there.

    Returns:
        The overlay that is being built; None: the job waits for none.
    """
    overlay = scope.find(Overlay, Overlay.id == job.overlay_id) if job.overlay_id else None
    if overlay is None or overlay.state in _THERE:
        return None
    _serialise(scope, overlay.key)
    found = _find(scope, overlay.key) or _rebuild(scope, job, overlay)
    _attach(scope, job, found)
    return found


def build_again(scope: Scope, overlay: Overlay, lost: Job) -> Job:
    """Another build of an overlay, in place of a build that ended through no fault of its own."""
    build = _insert_build(scope, lost, Manifest.model_validate(overlay.manifest), overlay.code_sha256)
    overlay.job_id, overlay.builds = build.id, overlay.builds + 1
    return build


def describe_lock(overlay: Overlay) -> str:
    """``24 packages: transformers 4.57.6, tokenizers 0.22.2 and 22 more``; for events."""
    lock = overlay.lock or []
    if not lock:
        return "the image has all of them"
    named = ", ".join(f"{pin['name']} {pin['version']}" for pin in lock[:_NAMED])
    others = len(lock) - _NAMED
    return f"{count(len(lock), 'package')}: {named}" + (f" and {others} more" if others > 0 else "")


def _serialise(scope: Scope, key: str) -> None:
    """Two jobs with the same request that come at once get the same overlay."""
    lock = text("select pg_advisory_xact_lock(hashtextextended(:name, 0))")
    scope.session.execute(lock, {"name": f"overlay {scope.project_id} {key}"})


def _find(scope: Scope, key: str) -> Overlay | None:
    fresh = Overlay.created_at > func.now() - _FRESH
    statement = scope.select(Overlay, Overlay.key == key, Overlay.state.in_(_THERE), fresh)
    return scope.session.scalars(statement.order_by(Overlay.created_at.desc()).limit(1)).first()


def _known(scope: Scope, manifest: Manifest) -> list[str]:
    """Hashes of locks whose overlays are there, for the same image and engine."""
    statement = (
        select(Overlay.lock_sha256)
        .where(
            Overlay.project_id == scope.project_id,
            Overlay.image == manifest.framework.image,
            Overlay.engine == manifest.engine,
            Overlay.state == OverlayState.READY,
            Overlay.lock_sha256.is_not(None),
        )
        .order_by(Overlay.used_at.desc())
        .limit(_MOST_KNOWN)
    )
    return [digest for digest in dict.fromkeys(scope.session.scalars(statement)) if digest]


def _rebuild(scope: Scope, job: Job, overlay: Overlay) -> Overlay:
    """A new overlay in place of one that failed or was dropped; with the same versions if they are known."""
    manifest = Manifest.model_validate(overlay.manifest)
    if overlay.lock is None:
        return _build(scope, job, overlay.key, manifest, overlay.code_sha256)
    rebuilt = _build(scope, job, overlay.key, with_pins(manifest, overlay.lock), overlay.code_sha256)
    rebuilt.created_at = overlay.created_at
    return rebuilt


def _build(scope: Scope, job: Job, key: str, manifest: Manifest, code_sha256: str | None) -> Overlay:
    overlay = Overlay(
        id=new_id("ovl"),
        key=key,
        image=manifest.framework.image,
        engine=manifest.engine,
        manifest=_canonical(manifest),
        code_sha256=code_sha256,
        job_id=_insert_build(scope, job, manifest, code_sha256).id,
    )
    scope.add(overlay)
    scope.session.flush()
    return overlay


def _insert_build(scope: Scope, job: Job, manifest: Manifest, code_sha256: str | None) -> Job:
    build = Job(
        id=new_id("job"),
        user_id=job.user_id,
        kind=BUILD_KIND,
        name=manifest.name,
        labels={},
        manifest=_canonical(manifest),
        code_sha256=code_sha256,
        engine=manifest.engine,
        priority=manifest.priority,
        learners=1,
        retries=0,
        traceparent=job.traceparent,
    )
    jobs.submit(scope, build, [])
    _copy_credentials(scope, job, build, manifest)
    return build


def _copy_credentials(scope: Scope, job: Job, build: Job, manifest: Manifest) -> None:
    """Those that came with the job's manifest, for the data stores that the build reads wheels from."""
    stores = {store.id for store in manifest.data_stores}
    for secret in scope.all(scope.select(Secret, Secret.job_id == job.id)) if stores else ():
        if (store_id := secret.name.partition("/")[2]) in stores:
            name = jobs.credentials_name(build.id, store_id)
            scope.add(Secret(id=new_id("sec"), name=name, job_id=build.id, ciphertext=secret.ciphertext))


def _canonical(manifest: Manifest) -> Mapping[str, Any]:
    return manifest.model_dump(mode="json", exclude_none=True)


def _attach(scope: Scope, job: Job, overlay: Overlay) -> None:
    job.overlay_id = overlay.id
    overlay.used_at = func.now()
    if overlay.state == OverlayState.BUILDING:
        message = f"packages: job {overlay.job_id} builds them"
    else:
        message = f"packages: built before, {describe_lock(overlay)}"
    jobs.record_event(scope.session, job, "packages", message, data={"overlay": overlay.id, "build": overlay.job_id})
