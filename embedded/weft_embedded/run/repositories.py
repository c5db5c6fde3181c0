"""The repository of a run: on the user's own machine, any address may be asked which commit a ref is."""

from __future__ import annotations

from weft_core.launch import RepositoryInput
from weft_core.manifest import ParsedManifest
from weft_core.outgoing import Outgoing
from weft_core.repositories import RepositoryError, authorization, find_commit
from weft_embedded.run.request import Request, RunError
from weft_embedded.run.stores import find_secret


def find_repository(request: Request, parsed: ParsedManifest) -> RepositoryInput | None:
    """The commit that all attempts of the run fetch; None: the manifest names no repository. Raises RunError."""
    wanted = parsed.manifest.repo
    if wanted is None:
        return None
    if request.code is not None:
        raise RunError("repo: code was given, too: leave out either of the two")
    secret = find_secret(request, wanted.secret, "repo.secret") if wanted.secret else None
    try:
        commit = find_commit(Outgoing(None), wanted.url, wanted.ref, secret)
    except RepositoryError as error:
        raise RunError(f"repo: the repository can't be read: {error}") from None
    return RepositoryInput(
        url=wanted.url,
        commit=commit,
        folder=wanted.path,
        authorization=authorization(secret) if secret else None,
    )
