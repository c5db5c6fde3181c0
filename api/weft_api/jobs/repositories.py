"""The repository that a manifest names in place of code: its secret, and the commit that its branch or tag is."""

from __future__ import annotations

from dataclasses import replace

import structlog

from weft_api.context import Context
from weft_api.jobs.checks import Checks
from weft_core.manifest import ParsedManifest
from weft_core.repositories import RepositoryError, find_commit

_log = structlog.get_logger(__name__)


def pin_repository(context: Context, parsed: ParsedManifest, checks: Checks) -> ParsedManifest:
    """The manifest with the commit that all attempts of the job, and its reruns, have.

    Raises:
        Problem: invalid_manifest: the repository can't be read.
    """
    repository = parsed.manifest.repo
    if repository is None:
        return parsed
    try:
        commit = find_commit(context.outgoing, repository.url, repository.ref, checks.repository_secret)
    except RepositoryError as error:
        _log.warning("repository_not_read", url=repository.url, reason=str(error), detail=error.detail)
        path, found = ("repo.ref", repository.ref) if error.of_ref and repository.ref else ("repo.url", repository.url)
        checks.add(path, f"the repository can't be read: {error}", found=found)
        checks.refuse()
        raise AssertionError from error  # refused
    pinned = repository.model_copy(update={"commit": commit})
    return replace(parsed, manifest=parsed.manifest.model_copy(update={"repo": pinned}))
