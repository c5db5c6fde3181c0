"""Where users' data stores are, and the credentials that open them."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from weft_core.launch import S3Location
from weft_core.manifest import Credentials, DataStore, Manifest, Place
from weft_core.secrets import SecretBox
from weft_core.store.credentials import unseal
from weft_core.store.jobs import credentials_name
from weft_core.store.models import Datastore, Job, ModelVersion, Secret
from weft_core.store.scope import Scope


@dataclass(frozen=True)
class OpenStore:
    """An S3 endpoint with the credentials to use there; None: it issues temporary keys for each use."""

    endpoint: str
    region: str | None
    credentials: Credentials | None = field(repr=False)
    space: str = ""
    """The beginning of the names of the project's buckets, in a store that projects share."""

    def at(self, container: str, *prefix: str) -> S3Location:
        place = S3Location(
            endpoint=self.endpoint,
            region=self.region,
            temporary=self.credentials is None,
            space=self.space,
            container=container,
            prefix="/".join(part.strip("/") for part in prefix if part.strip("/")),
        )
        if self.credentials is None:
            return place
        return place.model_copy(
            update={
                "access_key": self.credentials.user_name,
                "secret_key": self.credentials.password,
                "session_token": self.credentials.session_token,
                "ca": self.credentials.ca,
            }
        )


class StoreGone(Exception):
    """A data store, or credentials, that a job names no longer exist. The message is for the user."""


def open_kept(scope: Scope, box: SecretBox, name: str) -> OpenStore | None:
    """The data store that the project has under ``name``; None if there is none."""
    row = scope.find(Datastore, Datastore.name == name)
    if row is None:
        return None
    if row.secret_id is None:
        return OpenStore(row.endpoint, row.region, None, row.space or "")
    secret = scope.find(Secret, Secret.id == row.secret_id)
    return OpenStore(row.endpoint, row.region, unseal(box, secret.ciphertext)) if secret else None


def open_job_store(scope: Scope, box: SecretBox, job_id: str, store: DataStore) -> OpenStore:
    """The store that ``store`` of a job's manifest names. Raises StoreGone."""
    if store.datastore is not None:
        opened = open_kept(scope, box, store.datastore)
        if opened is None:
            raise StoreGone(f"the data store {store.datastore!r} (data_stores: {store.id}) has been deleted")
        return opened
    if store.connection is None:
        raise StoreGone(f"data_stores: {store.id} names no S3 store")
    secret = scope.find(Secret, Secret.name == credentials_name(job_id, store.id))
    if secret is None:
        raise StoreGone(f"the credentials of data_stores: {store.id} are gone")
    return OpenStore(store.connection.auth_url, store.connection.region, unseal(box, secret.ciphertext))


def results_location(session: Session, box: SecretBox, job: Job) -> S3Location | None:
    """Where the job's results go: ``<container>/<prefix>/<job id>/``; None: the installation's own store.

    Raises:
        StoreGone: the store no longer exists.
    """
    results = Manifest.model_validate(job.manifest).results_place
    if results is None:
        return None
    store, place = results
    opened = open_job_store(Scope(session, job.project_id), box, job.id, store)
    return opened.at(place.container, place.prefix, job.id)


def version_location(scope: Scope, box: SecretBox, version: ModelVersion) -> S3Location | None:
    """Where a model version's objects are; None: in the installation's own store, under ``version.prefix``.

    Raises:
        StoreGone: its data store no longer exists.
    """
    if version.container is None:
        return None
    if version.datastore is not None:
        opened = open_kept(scope, box, version.datastore)
        if opened is None:
            raise StoreGone(f"the data store {version.datastore!r} that the model is in has been deleted")
        return opened.at(version.container, version.prefix)
    secret = scope.find(Secret, Secret.id == version.secret_id)
    if secret is None or version.endpoint is None:
        raise StoreGone("the credentials of the store that the model is in are gone")
    return OpenStore(version.endpoint, version.region, unseal(box, secret.ciphertext)).at(
        version.container, version.prefix
    )


def checkpoints_location(session: Session, box: SecretBox, job: Job) -> S3Location | None:
    """Where the job's checkpoints go: ``<container>/<prefix>/_checkpoints/<job id>/``; None: the installation's own
    store.

    Raises:
        StoreGone: the store no longer exists.
    """
    results = Manifest.model_validate(job.manifest).results_place
    if results is None:
        return None
    store, place = results
    return checkpoints_in(open_job_store(Scope(session, job.project_id), box, job.id, store), place, job.id)


def checkpoints_in(opened: OpenStore, place: Place, job_id: str) -> S3Location:
    return opened.at(place.container, place.prefix, "_checkpoints", job_id)
