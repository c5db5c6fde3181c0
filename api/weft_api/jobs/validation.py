"""Checking a manifest without submitting it: what would be refused at submit is refused here, too."""

from __future__ import annotations

from collections.abc import Mapping

from weft_api.access.auth import Principal
from weft_api.access.lookups import find_job
from weft_api.context import Context, Shared
from weft_api.jobs.checks import ask_stores, look_up
from weft_api.jobs.lifecycle import credentials_of
from weft_api.jobs.notifications import check_webhooks, look_up_targets
from weft_api.jobs.repositories import pin_repository
from weft_api.jobs.schemas import ValidManifest
from weft_api.storage.checker import Checker
from weft_core.manifest import parse_manifest

_CHECKER = Shared(lambda context: Checker(context), Checker.close)
"""A checker for validation alone: pages validate while a user types, and a slow store must not take threads from
submits."""


def validate(
    context: Context, who: Principal, text: bytes, overrides: Mapping[str, str], rerun_of: str | None
) -> ValidManifest:
    """The meaning of a manifest.

    A viewer can't have the server call an address that stands in a manifest, as a viewer can't submit one either: such
    a store is not asked, and a note says so. Stores that the project keeps are.

    Args:
        rerun_of: a job, whose credentials open the same endpoints where the manifest has none.

    Raises:
        ManifestError, Problem: it would be refused.
    """
    with context.database.transaction() as session:
        scope = who.scope(session)
        credentials = credentials_of(context, scope, find_job(scope, rerun_of)) if rerun_of is not None else None
        parsed = parse_manifest(text, context.settings, overrides=overrides, credentials=credentials)
        checks = look_up(scope, context, who, parsed)
        look_up_targets(scope, context, parsed.manifest, checks)
    own = [container for container in checks.containers if container.credentials_path.endswith(".connection")]
    unasked = [] if who.may("editor") else own
    checks.containers = [container for container in checks.containers if container not in unasked]
    warnings = []
    if who.may("editor"):
        warnings += check_webhooks(context, _CHECKER.of(context), checks)
    warnings += ask_stores(context, _CHECKER.of(context), checks)
    warnings += [f"{container.path}: not checked: only editors may have its data store asked" for container in unasked]
    if who.may("editor"):
        parsed = pin_repository(context, parsed, checks)
    elif parsed.manifest.repo is not None:
        warnings.append("repo.url: not checked: only editors may have its repository asked")
    shown = parsed.manifest.model_dump(mode="json", exclude_none=True)
    return ValidManifest(manifest=shown, notes=[*parsed.manifest.notes, *warnings])
