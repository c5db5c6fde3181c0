"""Whether the things that a manifest names exist. Submission and validation run the same checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from weft_api.access.auth import Principal
from weft_api.access.budgets import refuse_used_up, refuse_without_limit
from weft_api.context import Context
from weft_api.http.problems import INVALID_MANIFEST, FieldProblem, Problem
from weft_api.jobs.mounts import mount_problems
from weft_api.models.files import FilesGone, VersionFiles, version_files
from weft_api.storage.checker import Checker, NamedContainer
from weft_api.storage.locations import OpenStore, StoreGone, open_kept
from weft_core.command import needed_files
from weft_core.manifest import After, DataStore, ModelReference, ParsedManifest
from weft_core.objects import StoreError
from weft_core.store import registry
from weft_core.store.models import Job, Secret
from weft_core.store.predecessors import never_starts
from weft_core.store.registry import UnknownModel
from weft_core.store.scope import Scope

_USES = ("training_data", "training_results", "pretrained_model", "wheels")


@dataclass(frozen=True)
class Pinned:
    """The version that a manifest's model means, once and for all attempts of the job."""

    id: str
    path: str  # data_stores[0].model
    written: str  # mnist@production
    files: VersionFiles


@dataclass
class Checks:
    """The findings of the project's rows about a manifest, and the questions that remain for the stores."""

    position: Callable[[str], tuple[int | None, int | None]]
    problems: list[FieldProblem] = field(default_factory=list)
    containers: list[NamedContainer] = field(default_factory=list)
    pinned: Pinned | None = None
    repository_secret: str | None = field(default=None, repr=False)
    """``user:password`` or a token, for the manifest's repository."""
    webhooks: list[tuple[str, str]] = field(default_factory=list, repr=False)
    """The URLs of ``notify``, each with the path at which the manifest names it."""

    def add(self, path: str, message: str, *, found: str | None = None, accepted: str | None = None) -> None:
        self.problems.append(FieldProblem(path=path, message=message, found=found, accepted=accepted))

    def add_missing_secret(self, path: str, name: str) -> None:
        """Note that the project has no such secret."""
        accepted = f"the name of a secret that is kept (`weft secrets set {name}` keeps one)"
        self.add(path, f"no secret named {name!r} in this project", found=name, accepted=accepted)

    def refuse(self) -> None:
        """Raise Problem invalid_manifest with everything that was found, if anything was."""
        if not self.problems:
            return
        located = []
        for problem in self.problems:
            line, column = self.position(problem.path)
            located.append(problem.model_copy(update={"line": line, "column": column}))
        raise Problem(INVALID_MANIFEST, "; ".join(f"{problem.path}: {problem.message}" for problem in located), located)


def look_up(scope: Scope, context: Context, who: Principal, parsed: ParsedManifest) -> Checks:
    """Ask the database about everything that the manifest names. Raises Problem budget_used_up."""
    checks = Checks(parsed.position)
    manifest = parsed.manifest
    if who.budget is not None:
        asked = manifest.model_dump(mode="json", include={"resources", "max_runtime_seconds"})
        if missing := refuse_without_limit(who, asked, manifest.learners):
            checks.problems.append(missing)
        refuse_used_up(context, scope, who, asked, manifest.learners)
    _look_up_secrets(scope, manifest.secrets, checks)
    _look_up_predecessors(scope, manifest.after, checks)
    if manifest.repo is not None and manifest.repo.secret is not None:
        _look_up_repository_secret(scope, context, manifest.repo.secret, checks)
    for number, store in enumerate(manifest.data_stores):
        path = f"data_stores[{number}]"
        if store.mount is not None:
            checks.problems += mount_problems(store, store.mount, path, manifest.engine, context.settings)
        if store.model is not None:
            _pin(scope, context, store.model, f"{path}.model", checks)
        if (opened := _opened(scope, context, parsed, store, path, checks)) is None:
            continue
        credentials_path = f"{path}.datastore" if store.datastore is not None else f"{path}.connection"
        for use in _USES:
            place = getattr(store, use)
            if place is not None and place.container is not None:
                checks.containers.append(NamedContainer(f"{path}.{use}", credentials_path, opened, place))
    return checks


def refuse_missing_code(command: str, checks: Checks) -> None:
    """Note the files of the code that a command needs when no code comes with it."""
    if missing := needed_files(command):
        checks.add(
            "framework.command",
            f"runs {missing[0]}, a file of the code, and no code came with the manifest",
            found=missing[0],
            accepted="the code's folder or zip, sent with the manifest; or the absolute path of a program of the image",
        )


def refuse_code_and_repository(checks: Checks) -> None:
    """Note that there are two sources of code."""
    checks.add("repo", "code came with the manifest, too: leave out either of the two", accepted="repo, or code")


def _look_up_secrets(scope: Scope, wanted: dict[str, str], checks: Checks) -> None:
    if not wanted:
        return
    kept = scope.all(scope.select(Secret, Secret.name.in_(set(wanted.values())), Secret.job_id.is_(None)))
    names = {secret.name for secret in kept}
    for variable, name in wanted.items():
        if name not in names:
            checks.add_missing_secret(f"secrets.{variable}", name)


def _look_up_predecessors(scope: Scope, after: Sequence[After], checks: Checks) -> None:
    if not after:
        return
    found = scope.all(scope.select(Job, Job.id.in_([entry.job for entry in after])))
    states = {job.id: job.state for job in found}
    for index, entry in enumerate(after):
        path = f"after[{index}]"
        if entry.job not in states:
            checks.add(path, f"no job {entry.job} in this project", found=entry.job, accepted="the id of a job")
        elif why := never_starts(entry.on, states[entry.job]):
            message = f"{entry.job} {why}, so a job that starts only when it has {entry.on} would never start"
            checks.add(path, message, found=entry.job, accepted="a job that can still end so, or another value of on")


def _look_up_repository_secret(scope: Scope, context: Context, name: str, checks: Checks) -> None:
    kept = scope.find(Secret, Secret.name == name, Secret.job_id.is_(None))
    if kept is None:
        checks.add_missing_secret("repo.secret", name)
    else:
        checks.repository_secret = context.box.decrypt(kept.ciphertext)


def _opened(
    scope: Scope, context: Context, parsed: ParsedManifest, store: DataStore, path: str, checks: Checks
) -> OpenStore | None:
    if store.datastore is not None:
        opened = open_kept(scope, context.box, store.datastore)
        if opened is None:
            checks.add(
                f"{path}.datastore",
                f"no data store named {store.datastore!r} in this project",
                found=store.datastore,
                accepted="the name of a data store that is kept (`weft datastores list`)",
            )
        return opened
    if store.connection is not None and store.id in parsed.credentials:
        return OpenStore(store.connection.auth_url, store.connection.region, parsed.credentials[store.id])
    return None


def _pin(scope: Scope, context: Context, reference: ModelReference, path: str, checks: Checks) -> None:
    """Find out which version a manifest's model means now."""
    written = f"{reference.name}@{reference.version}"
    try:
        model = registry.find_model(scope, reference.name)
        version = registry.find_version(scope, model, reference.version)
        checks.pinned = Pinned(version.id, path, written, version_files(context, scope, model, version))
    except (UnknownModel, StoreGone) as error:
        checks.add(
            path, str(error), found=written, accepted="NAME@VERSION of a version that is there (`weft models list`)"
        )


def ask_stores(context: Context, checker: Checker, checks: Checks, until: float | None = None) -> list[str]:
    """Ask the users' stores for the named containers; returns a warning for each store that did not answer.

    Args:
        until: when they must have been asked, by :func:`time.monotonic`.

    Raises:
        Problem: invalid_manifest, with everything that was found.
    """
    refusals, warnings = checker.check(checks.containers, until)
    if checks.pinned:
        warnings += _ask_model(context, checker, checks.pinned, checks)
    for refusal in refusals:
        checks.add(refusal.path, refusal.message, found=refusal.found, accepted=refusal.accepted)
    checks.refuse()
    return warnings


def _ask_model(context: Context, checker: Checker, pinned: Pinned, checks: Checks) -> list[str]:
    """Whether the version's objects still are what was registered."""
    try:
        checker.within_patience(lambda: pinned.files.listing(pinned.files.bucket(context)))
    except (FilesGone, StoreError) as error:
        if isinstance(error, StoreError) and error.kind == "unreachable":
            return [f"{pinned.path}: not checked: {error}; the job will need it when it starts"]
        checks.add(pinned.path, str(error), found=pinned.written)
    return []
