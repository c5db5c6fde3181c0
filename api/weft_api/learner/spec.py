"""The LearnerSpec: what a learner is to do, put together when it gets its start grant."""

from __future__ import annotations

from sqlalchemy import func

from weft_api.access.identity_tokens import identity_token
from weft_api.context import Context
from weft_api.http.audited import must_record
from weft_api.storage.locations import OpenStore, StoreGone, checkpoints_in, open_job_store, version_location
from weft_core.launch import (
    BundleInput,
    DataInput,
    IdentityToken,
    LearnerSpec,
    LeftoverSpec,
    LogSpec,
    MlflowSpec,
    ModelInput,
    MountInput,
    RepositoryInput,
    S3Location,
)
from weft_core.manifest import DataStore, Manifest, Place
from weft_core.objects import code_key, overlay_key
from weft_core.repositories import authorization
from weft_core.store.checkpoints import shared_source
from weft_core.store.models import Attempt, CodeBundle, Job, Model, ModelVersion, Overlay, OverlayState, Secret
from weft_core.store.scope import Scope
from weft_core.tokens import hash_token, mlflow_token

_CODE_URL_SECONDS = 24 * 3600


class SpecBuilder:
    """Puts together the spec of one attempt's learners."""

    def __init__(self, context: Context, scope: Scope, job: Job, attempt: Attempt) -> None:
        self._context = context
        self._scope = scope
        self._job = job
        self._attempt = attempt
        self._manifest = Manifest.model_validate(job.manifest)
        self._opened: dict[str, OpenStore] = {}

    def build(self, rank: int) -> LearnerSpec:
        """Raises StoreGone when something that the manifest names is not kept any more."""
        manifest, timings = self._manifest, self._context.settings.timings
        results, checkpoints = self._results()
        pretrained, model = self._pretrained()
        return LearnerSpec(
            job_id=self._job.id,
            job_name=self._job.name,
            attempt=self._attempt.n,
            rank=rank,
            learners=self._attempt.resources.get("learners", self._job.learners),
            cpus=manifest.resources.cpus,
            gpus=manifest.resources.gpus,
            memory=manifest.resources.memory,
            extra=dict(manifest.resources.extra),
            command=manifest.command,
            framework=manifest.framework.name,
            launcher=manifest.framework.launcher,
            env=manifest.variables | self._secrets(),
            parameters=manifest.parameters,
            secrets=sorted(manifest.secrets),
            code=self._code(),
            repo=self._repository(),
            overlay=self._overlay(),
            data=[
                DataInput(
                    id=store.id,
                    location=self._at(store, place),
                    mode=place.mode,
                    include=place.include,
                    exclude=place.exclude,
                    shard=place.shard,
                )
                for store, place in manifest.inputs
                if store.mount is None
            ],
            mounts=[
                MountInput(id=store.id, path=store.mount.folder(place))
                for store, place in manifest.inputs
                if store.mount is not None
            ],
            pretrained=pretrained,
            model=model,
            results=results,
            results_folder=self._results_folder(),
            registers=manifest.registers is not None,
            checkpoints=checkpoints,
            shared_from=shared_source(self._job),
            shared_checkpoints=self._shared_checkpoints(),
            checkpoint=manifest.checkpoint,
            identity=self.identity(rank),
            log=self._log(),
            leftovers=LeftoverSpec(
                results=manifest.results,
                keep=manifest.keep_leftovers,
                bytes=self._context.settings.limits.leftover_bytes,
            ),
            has_checkpoint=self._job.checkpoint_of is not None,
            elastic=manifest.elastic,
            evaluation_metrics=manifest.evaluation_metrics,
            mlflow=self._mlflow(rank),
            heartbeat_seconds=timings.heartbeat,
            system_metrics_seconds=timings.system_metrics,
            grace_seconds=timings.grace,
            max_runtime_seconds=manifest.max_runtime_seconds,
            keep_seconds=self._keep_seconds(),
        )

    def identity(self, rank: int) -> IdentityToken | None:
        """A new token, if the manifest asks for one. Raises SecretsUnreadable."""
        wanted = self._manifest.identity
        if wanted is None:
            return None
        must_record()
        return identity_token(self._context, self._scope.session, self._job, self._attempt, rank, wanted)

    def _keep_seconds(self) -> float:
        """A retry comes before a look inside."""
        left = self._job.failures < self._manifest.retries
        return 0.0 if left else self._manifest.keep_on_failure_seconds or 0.0

    def _log(self) -> LogSpec:
        """An even share of what the job may log, so that its agents need not ask each other; on disk no more than a
        tenth of what the learner has."""
        limits = self._context.settings.limits
        room = (self._manifest.resources.storage or 1 << 62) // 10
        learners = max(self._job.learners, self._manifest.elastic.max if self._manifest.elastic else 1)
        return LogSpec(
            lines_per_second=limits.log_lines_per_second / learners,
            bytes_per_second=limits.log_bytes_per_second / learners,
            burst_seconds=limits.log_burst_seconds,
            spool_bytes=min(limits.log_spool_bytes, room),
            file_bytes=min(limits.log_file_bytes, room),
        )

    def _mlflow(self, rank: int) -> MlflowSpec:
        """The token is derived, so only its hash is stored. Whoever presents it adds the rank, as all learners of an
        attempt trust each other."""
        token = mlflow_token(self._context.box.decrypt(self._attempt.token_ciphertext))
        self._attempt.mlflow_sha256 = hash_token(token)
        return MlflowSpec(token=f"{token}.{rank}", run_id=self._job.id)

    def _open(self, store: DataStore) -> OpenStore:
        if store.id not in self._opened:
            must_record()
            self._opened[store.id] = open_job_store(self._scope, self._context.box, self._job.id, store)
        return self._opened[store.id]

    def _at(self, store: DataStore, place: Place) -> S3Location:
        return self._open(store).at(place.container, place.prefix)

    def _pretrained(self) -> tuple[S3Location | None, ModelInput | None]:
        """Where it is (None: in the installation's own store), and its name when it is a version of the registry's."""
        found = self._manifest.pretrained
        if found is None:
            return None, None
        store, place = found
        if isinstance(place, Place):
            return self._at(store, place), None
        row = self._scope.find(ModelVersion, ModelVersion.id == self._job.pretrained_id)
        model = self._scope.find(Model, Model.id == row.model_id) if row else None
        if row is None or model is None:
            raise StoreGone(f"the version that {place.name}@{place.version} meant at submission has been deleted")
        location = version_location(self._scope, self._context.box, row)
        if location is not None:
            must_record()
        return location, ModelInput(id=row.id, reference=f"{model.name}@{row.number}")

    def _results(self) -> tuple[S3Location | None, S3Location | None]:
        """Where results and checkpoints go; None: the installation's own store."""
        if self._manifest.results_place is None:
            return None, None
        store, place = self._manifest.results_place
        opened = self._open(store)
        return (
            opened.at(place.container, place.prefix, self._job.id),
            checkpoints_in(opened, place, self._job.id),
        )

    def _shared_checkpoints(self) -> S3Location | None:
        """Both jobs have the same manifest, and so their checkpoints are in the same store."""
        source = shared_source(self._job)
        if source is None or self._manifest.results_place is None:
            return None
        store, place = self._manifest.results_place
        return checkpoints_in(self._open(store), place, source)

    def _results_folder(self) -> str | None:
        for store in self._manifest.data_stores:
            place = store.training_results
            if store.mount is not None and place is not None and place.container is not None:
                return f"{store.mount.folder(Place(container=place.container, prefix=place.prefix))}/{self._job.id}"
        return None

    def _secrets(self) -> dict[str, str]:
        wanted = self._manifest.secrets
        if not wanted:
            return {}
        must_record()
        rows = self._scope.all(
            self._scope.select(Secret, Secret.name.in_(set(wanted.values())), Secret.job_id.is_(None))
        )
        kept = {row.name: row.ciphertext for row in rows}
        missing = sorted(name for name in wanted.values() if name not in kept)
        if missing:
            raise StoreGone(f"the secret {missing[0]!r} that the manifest names has been deleted")
        return {variable: self._context.box.decrypt(kept[name]) for variable, name in wanted.items()}

    def _overlay(self) -> BundleInput | None:
        if self._job.overlay_id is None:
            return None
        row = self._scope.find(Overlay, Overlay.id == self._job.overlay_id)
        if row is None or row.state != OverlayState.READY:
            raise StoreGone("the job's packages are gone (`weft rerun` has them built again)")
        row.used_at = func.now()
        if row.sha256 is None or row.size is None:
            return None  # the image lacks nothing
        url = self._context.objects.presign_get(overlay_key(self._scope.project_id, row.sha256), _CODE_URL_SECONDS)
        return BundleInput(sha256=row.sha256, size=row.size, url=url)

    def _repository(self) -> RepositoryInput | None:
        wanted = self._manifest.repo
        if wanted is None or wanted.commit is None:
            return None
        secret = self._secret_of_repository(wanted.secret) if wanted.secret else None
        return RepositoryInput(
            url=wanted.url,
            commit=wanted.commit,
            folder=wanted.path,
            authorization=authorization(secret) if secret else None,
        )

    def _secret_of_repository(self, name: str) -> str:
        row = self._scope.find(Secret, Secret.name == name, Secret.job_id.is_(None))
        if row is None:
            raise StoreGone(f"the secret {name!r} that the manifest's repo names has been deleted")
        must_record()
        return self._context.box.decrypt(row.ciphertext)

    def _code(self) -> BundleInput | None:
        sha256 = self._job.code_sha256
        if sha256 is None:
            return None
        row = self._scope.find(CodeBundle, CodeBundle.sha256 == sha256)
        if row is None:
            raise StoreGone(f"the job's code bundle {sha256} is gone")
        url = self._context.objects.presign_get(code_key(self._scope.project_id, sha256), _CODE_URL_SECONDS)
        return BundleInput(sha256=sha256, size=row.size, url=url)
