"""A learner's task, as it comes with the start grant (the JSON of ``weft_core.launch.LearnerSpec``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from weft_trainer.errors import TrainerError
from weft_trainer.reprs import repr_without


class S3Location(NamedTuple):
    endpoint: str
    access_key: str = ""
    secret_key: str = ""
    container: str = ""
    prefix: str = ""
    region: str | None = None
    session_token: str | None = None
    ca: str | None = None
    """Certificates (PEM) of a private authority that signs the endpoint's."""
    temporary: bool = False
    """The keys are ``LearnerSpec.store_keys``."""
    key_file: str | None = None
    """The file with the newest keys (:mod:`weft_trainer.stores.temporary_keys`)."""
    space: str = ""
    """The prefix of the container's name in the store."""

    def __repr__(self) -> str:
        return repr_without(self, "secret_key", "session_token")

    @property
    def bucket(self) -> str:
        """The container by the name that the store knows."""
        return self.space + self.container

    @property
    def words(self) -> str:
        """As a user would point at it."""
        return f"{self.container}/{self.prefix}" if self.prefix else self.container


class StoreKeys(NamedTuple):
    """Temporary S3 keys."""

    access_key: str
    secret_key: str
    session_token: str
    seconds: float
    """How long the keys are valid from now on."""

    def __repr__(self) -> str:
        return repr_without(self, "secret_key", "session_token")


class IdentityToken(NamedTuple):
    """A token by which a service that trusts the installation knows the learner."""

    token: str
    seconds: float
    """How long the token is valid from now on."""

    def __repr__(self) -> str:
        return repr_without(self, "token")


class DataInput(NamedTuple):
    id: str
    location: S3Location
    mode: str = "download"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    shard: str = "none"


class MountInput(NamedTuple):
    """A folder of this machine, whose content is in DATA_DIR, too."""

    id: str
    path: str


class BundleInput(NamedTuple):
    """A zip, of the code or of an overlay."""

    sha256: str
    size: int
    url: str

    def __repr__(self) -> str:
        return repr_without(self, "url")


class RepositoryInput(NamedTuple):
    """A commit of a git repository."""

    url: str
    commit: str
    folder: str = ""
    """The folder of it that becomes MODEL_DIR."""
    authorization: str | None = None
    """The value of the header ``Authorization``; None: the repository is public."""

    def __repr__(self) -> str:
        return repr_without(self, "authorization")


class ModelInput(NamedTuple):
    """The version of the service's registry that PRETRAINED_DIR holds."""

    id: str
    reference: str  # NAME@NUMBER


class CheckpointSpec(NamedTuple):
    every_seconds: float = 300.0
    keep: int = 3


class LogSpec(NamedTuple):
    """How much this learner may log; a rate of 0: any."""

    lines_per_second: float = 10_000.0
    bytes_per_second: float = 2 << 20
    burst_seconds: float = 20.0
    spool_bytes: int = 512 << 20
    """Bytes on disk that the API has not taken yet."""
    file_bytes: int = 1 << 30
    """The largest size of training-log.txt."""


class LeftoverSpec(NamedTuple):
    """Which files in the job's folder are stored when the program has ended."""

    results: tuple[str, ...] = ()
    """Globs of the files that are stored, whatever their size."""
    keep: bool = True
    """Whether leftovers are kept."""
    bytes: int = 0
    """The limit of their total size."""


class ElasticSpec(NamedTuple):
    """Between these numbers of learners training goes on."""

    min: int
    max: int


class EvaluationMetrics(NamedTuple):
    type: str = "logger"  # or regex_extractor, tensorboard, emetrics_file
    path: str | None = None
    """The manifest's ``in``."""
    line_lookahead: int = 4
    groups: Mapping[str, Mapping[str, Any]] = {}


class MlflowSpec(NamedTuple):
    """The access of the program's MLflow client, to this job alone."""

    token: str
    run_id: str

    def __repr__(self) -> str:
        return repr_without(self, "token")


class LearnerSpec(NamedTuple):
    job_id: str
    job_name: str
    attempt: int
    rank: int  # from 0
    learners: int
    cpus: float
    gpus: int
    command: str
    framework: str
    launcher: str
    env: Mapping[str, str] = {}
    secrets: tuple[str, ...] = ()
    """Names of the variables in ``env`` whose values are secrets."""
    parameters: Mapping[str, Any] = {}
    """For WEFT_PARAMETERS_FILE; they are in ``command`` and ``env`` already."""
    code: BundleInput | None = None
    repo: RepositoryInput | None = None
    """The code, instead of ``code``."""
    overlay: BundleInput | None = None
    """The packages that the image lacks."""
    data: tuple[DataInput, ...] = ()
    mounts: tuple[MountInput, ...] = ()
    pretrained: S3Location | None = None
    model: ModelInput | None = None
    """Without ``pretrained`` it is in the installation's own store."""
    results: S3Location | None = None
    checkpoints: S3Location | None = None
    shared_from: str | None = None
    """The job whose stored checkpoint this job begins with. It is only read there."""
    shared_checkpoints: S3Location | None = None
    """The place of that job's checkpoints; None: the installation's own store."""
    store_keys: StoreKeys | None = None
    """The keys for locations that are ``temporary``."""
    identity: IdentityToken | None = None
    """None: the manifest asks for none."""
    results_folder: str | None = None
    """A folder of this machine that gets a copy of RESULT_DIR."""
    registers: bool = False
    """Whether the results become a version of a model; their summary is reported with the exit."""
    checkpoint: CheckpointSpec = CheckpointSpec()
    log: LogSpec = LogSpec()
    leftovers: LeftoverSpec | None = None
    """None: the service is older, and would not report leftovers to the user."""
    elastic: ElasticSpec | None = None
    has_checkpoint: bool = False
    """The job began with another job's checkpoint."""
    memory: int | None = None
    """Bytes; None: the service did not say."""
    extra: Mapping[str, float] = {}
    """Other resources than CPUs, GPUs and memory, by the engine's names."""
    gang_secret: str = ""
    """A secret that only the learners of the attempt know; it says nothing about the attempt's token."""
    evaluation_metrics: EvaluationMetrics = EvaluationMetrics()
    mlflow: MlflowSpec | None = None
    """None: the service gives none."""
    heartbeat_seconds: float = 3.0
    system_metrics_seconds: float = 5.0
    """Between two samples; 0: there are none."""
    grace_seconds: float = 120.0
    keep_seconds: float = 0.0
    """How long this learner stays for a look inside after its command has failed."""

    def __repr__(self) -> str:
        return repr_without(self, "env", "gang_secret")

    @property
    def learner_id(self) -> int:
        """LEARNER_ID: from 1."""
        return self.rank + 1

    @property
    def has_downloads(self) -> bool:
        """Whether anything must be brought here before the command can start."""
        inputs = (self.code, self.repo, self.overlay, self.data, self.mounts, self.pretrained, self.model)
        return any(inputs) or self.may_have_checkpoints

    @property
    def may_have_checkpoints(self) -> bool:
        """Whether an earlier run may have left checkpoints: in the installation's own store they are this job's
        own, so its first attempt has none, unless the job began with another job's checkpoint."""
        return self.checkpoints is not None or self.attempt > 1 or self.has_checkpoint


class Peer(NamedTuple):
    """A learner as the others can reach it; its ports were free when it reported them and are its own to use."""

    rank: int
    address: str
    ports: tuple[int, ...]


def parse_spec(data: Mapping[str, Any]) -> LearnerSpec:
    """Keys that this agent does not know are left out: the service may be newer.

    Raises:
        TrainerError: a key is missing or of the wrong type.
    """
    try:
        known = _known(LearnerSpec, data)
        for name in ("code", "overlay"):
            known[name] = _optional(BundleInput, data.get(name))
        known["repo"] = _optional(RepositoryInput, data.get("repo"))
        known["model"] = _optional(ModelInput, data.get("model"))
        known["secrets"] = tuple(data.get("secrets", ()))
        known["data"] = tuple(
            DataInput(
                entry["id"],
                _location(entry["location"]),
                entry.get("mode", "download"),
                tuple(entry.get("include", ())),
                tuple(entry.get("exclude", ())),
                entry.get("shard", "none"),
            )
            for entry in data.get("data", [])
        )
        known["mounts"] = tuple(MountInput(entry["id"], entry["path"]) for entry in data.get("mounts", []))
        for name in ("pretrained", "results", "checkpoints", "shared_checkpoints"):
            known[name] = _optional(S3Location, data.get(name))
        known["store_keys"] = store_keys(data.get("store_keys"))
        known["identity"] = identity_token(data.get("identity"))
        known["checkpoint"] = _optional(CheckpointSpec, data.get("checkpoint")) or CheckpointSpec()
        known["log"] = _optional(LogSpec, data.get("log")) or LogSpec()
        known["leftovers"] = _leftovers(data.get("leftovers"))
        known["mlflow"] = _optional(MlflowSpec, data.get("mlflow"))
        known["elastic"] = _optional(ElasticSpec, data.get("elastic"))
        known["evaluation_metrics"] = (
            _optional(EvaluationMetrics, data.get("evaluation_metrics")) or EvaluationMetrics()
        )
        return LearnerSpec(**known)
    except (KeyError, TypeError, AttributeError) as error:
        raise TrainerError(f"the API's spec for this learner can't be read: {error}") from None


def store_keys(data: Mapping[str, Any] | None) -> StoreKeys | None:
    keys: StoreKeys | None = _optional(StoreKeys, data)
    return keys


def identity_token(data: Mapping[str, Any] | None) -> IdentityToken | None:
    token: IdentityToken | None = _optional(IdentityToken, data)
    return token


def _leftovers(data: Mapping[str, Any] | None) -> LeftoverSpec | None:
    return None if data is None else LeftoverSpec(**_known(LeftoverSpec, data) | {"results": tuple(data["results"])})


def _known(kind: type[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: data[name] for name in kind._fields if name in data}


def _optional(kind: type[Any], data: Mapping[str, Any] | None) -> Any:
    return None if data is None else kind(**_known(kind, data))


def _location(data: Mapping[str, Any]) -> S3Location:
    return S3Location(**_known(S3Location, data))
