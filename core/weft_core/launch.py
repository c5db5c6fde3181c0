"""The launch spec, from the service to an engine, and the learner's spec, from the API to a learner.

An engine gets the API's URL and the attempt's token, and neither the user's command nor a credential of the user. A
learner gets everything else with its start grant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Launcher = Literal["none", "horovod", "torchrun", "tensorflow", "ray", "slurm"]
"""The program that starts the gang's processes."""


@dataclass(frozen=True)
class Resources:
    """The resources of a learner."""

    cpus: float
    gpus: int
    memory: int  # bytes
    storage: int | None = None  # bytes
    gpu_type: str | None = None
    extra: Mapping[str, float] = field(default_factory=dict)
    """Other resources, by the engine's names: extended resources of Kubernetes, custom resources of Ray."""


class Toleration(BaseModel):
    """A taint of nodes that learners tolerate, in Kubernetes' words."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str = ""  # empty with Exists: every taint
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""  # empty: all effects

    @model_validator(mode="after")
    def _sensible(self) -> Toleration:
        # As Kubernetes would say of each pod, here already.
        if not self.key and self.operator == "Equal":
            raise ValueError('key: missing; without one operator = "Exists" is needed, which tolerates every taint')
        if self.value and self.operator == "Exists":
            raise ValueError('value: goes with operator = "Equal" only')
        return self


@dataclass(frozen=True)
class Placement:
    """The nodes on which learners may run, from the job's profile."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    affinity: Mapping[str, Any] = field(default_factory=dict)
    priority_class: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    """Names of nodes that were blamed so often that they get no learners."""


@dataclass(frozen=True)
class LaunchSpec:
    """All that an engine needs to start the gang of an attempt. The engine starts all learners or none.

    Each learner runs ``python -m weft_trainer`` of ``image`` with ``WEFT_API_URL``, ``WEFT_ATTEMPT_TOKEN``,
    ``WEFT_RANK`` (from 0) and ``WEFT_NUM_LEARNERS`` in its environment.
    """

    run_name: str
    installation: str
    project_id: str
    job_id: str
    attempt: int
    learners: int
    resources: Resources
    image: str  # 'horovod:0.28.1' of the catalogue, or a custom reference
    api_url: str
    token: str = field(repr=False)
    project: str = ""  # its name
    job_name: str = ""
    placement: Placement = field(default_factory=Placement)
    grace: float = 120.0
    """Seconds from SIGTERM to SIGKILL if the platform itself ends a learner (a drained node)."""
    endpoints: tuple[str, ...] = ()
    """The URLs of the S3 stores, indexes and repositories that the job's manifest names."""
    own_endpoints: tuple[str, ...] = ()
    """The URLs of the administrator's settings that the learners use: the installation's store, its package index."""
    traceparent: str | None = None
    """The place of the learners' start in a trace. It becomes ``TRACEPARENT`` in their environment."""


# --- the learner's spec (JSON, from POST /api/v1/learner/start) ---------------------------------------------------


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class S3Location(_Wire):
    """A container and a prefix in an S3 store, with the credentials for it."""

    endpoint: str
    region: str | None = None
    temporary: bool = False
    """The store issues temporary keys, so there are none here: a learner's are :attr:`LearnerSpec.store_keys`."""
    access_key: str = ""
    secret_key: str = Field(default="", repr=False)
    session_token: str | None = Field(default=None, repr=False)
    ca: str | None = None
    """Certificates (PEM) to trust for this store, besides the system's."""
    space: str = ""
    """The beginning of the names of the project's buckets, in a store that projects share."""
    container: str
    prefix: str = ""  # no slash at its ends

    @property
    def bucket(self) -> str:
        """The container by the name that the store knows."""
        return self.space + self.container


class StoreKeys(_Wire):
    """Temporary S3 keys."""

    access_key: str
    secret_key: str = Field(repr=False)
    session_token: str = Field(repr=False)
    seconds: float
    """How long the keys are valid from now on."""


class IdentityToken(_Wire):
    """A token of OpenID Connect, by which a service that trusts the installation knows the learner."""

    token: str = Field(repr=False)
    seconds: float
    """How long the token is valid from now on."""


class DataInput(_Wire):
    """An entry of the manifest's ``training_data``. It is downloaded to ``DATA_DIR``, where all entries share the
    folder in the order of the manifest, or it is streamed."""

    id: str
    location: S3Location
    mode: Literal["download", "stream"] = "download"
    include: list[str] = Field(default_factory=list)
    """Globs of paths below the location's prefix; none: all."""
    exclude: list[str] = Field(default_factory=list)
    shard: Literal["none", "learner"] = "none"


class MountInput(_Wire):
    """A folder of the learner's machine, whose content appears in ``DATA_DIR``, too."""

    id: str
    path: str


class BundleInput(_Wire):
    """A zip, of the code or of an overlay."""

    sha256: str
    size: int
    url: str = Field(repr=False)  # presigned GET


class RepositoryInput(_Wire):
    """A commit of a git repository."""

    url: str
    commit: str
    folder: str = ""
    """The folder of it that becomes MODEL_DIR."""
    authorization: str | None = Field(default=None, repr=False)
    """The value of the header ``Authorization``; None: the repository is public."""


class ModelInput(_Wire):
    """A model version that goes to ``PRETRAINED_DIR``. No other version on any installation ever has its ``id``."""

    id: str
    reference: str  # NAME@NUMBER


class CheckpointSpec(_Wire):
    every_seconds: float = 300.0
    keep: int = 3


class LogSpec(_Wire):
    """The limits of a learner's log. A rate of 0 means no limit. See ``LimitSettings``."""

    lines_per_second: float
    bytes_per_second: float
    burst_seconds: float
    spool_bytes: int
    file_bytes: int


class LeftoverSpec(_Wire):
    """Which files in the job's folder are stored when the program has ended."""

    results: list[str] = Field(default_factory=list)
    """Globs of the files that are stored, whatever their size."""
    keep: bool = True
    """Whether leftovers, the other files that are new or have changed, are kept."""
    bytes: int = 0
    """The limit of their total size; 0: they are only listed."""


class ElasticSpec(_Wire):
    min: int
    max: int


class Meta(_Wire):
    time: str | None = None


class Extracted(_Wire):
    """A value that a regular expression extracts: its type, and the group that holds it (``$name``)."""

    type: Literal["STRING", "JSONSTRING", "INT", "FLOAT"]
    value: str


class MetricGroup(_Wire):
    regex: str
    meta: Meta | None = None
    scalars: dict[str, Extracted] = Field(default_factory=dict)
    etimes: dict[str, Extracted] = Field(default_factory=dict)


class EvaluationMetrics(_Wire):
    """A source of metrics besides those that every learner reads. The four types are FfDL's."""

    type: Literal["logger", "regex_extractor", "tensorboard", "emetrics_file"] = "logger"
    image_tag: str | None = None
    path: str | None = None
    """The manifest's key ``in``."""
    line_lookahead: int = 4
    event_types: list[str] = Field(default_factory=list)
    groups: dict[str, MetricGroup] = Field(default_factory=dict)


class MlflowSpec(_Wire):
    """How the program's MLflow client logs to the job (docs/mlflow.md)."""

    token: str = Field(repr=False)
    run_id: str
    """The job's own run."""


class LearnerSpec(_Wire):
    """The task of a learner. All learners of an attempt have the same task, apart from ``rank``."""

    job_id: str
    job_name: str
    attempt: int
    rank: int  # from 0
    learners: int
    cpus: float
    gpus: int
    command: str  # run by `bash -c` in MODEL_DIR
    framework: str
    launcher: Launcher  # never auto: resolved
    env: dict[str, str] = Field(repr=False)  # the manifest's env and secrets
    secrets: list[str] = Field(default_factory=list)
    """Names of the variables in ``env`` whose values are secrets. The agent masks them in all that it sends."""
    parameters: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """The manifest's. They are in ``command`` and ``env`` already; the agent also writes them into a file."""
    code: BundleInput | None = None
    repo: RepositoryInput | None = None
    """The code, instead of ``code``."""
    overlay: BundleInput | None = None
    """The packages that the image lacks. None: there are none, or this job builds them."""
    data: list[DataInput] = Field(default_factory=list)
    mounts: list[MountInput] = Field(default_factory=list)
    pretrained: S3Location | None = None
    model: ModelInput | None = None
    """The version in the registry. Without ``pretrained``, its files are in the installation's own store, and the API
    gives access to them (`/learner/objects`, space ``pretrained``)."""
    results: S3Location | None = None
    """The place for RESULT_DIR: ``<prefix>/<job id>/``, already joined. None: the installation's own store, through the
    API (`/learner/objects`)."""
    results_folder: str | None = None
    """A folder of the learner's machine that gets a copy of RESULT_DIR."""
    registers: bool = False
    """Whether the results become a version of a model. If so, the learner that stores last reports their files."""
    checkpoints: S3Location | None = None
    """The place for CHECKPOINT_DIR, as for ``results``."""
    shared_from: str | None = None
    """The id of the job whose stored checkpoint this job begins with, without a copy of its own."""
    shared_checkpoints: S3Location | None = None
    """The place of that job's checkpoints. None: the installation's own store (`/learner/objects`, ``shared``)."""
    store_keys: StoreKeys | None = None
    """The keys for all locations that are ``temporary``: they read this attempt's inputs, read and write its results
    and checkpoints, and open nothing else. `POST /api/v1/learner/store-keys` renews them."""
    identity: IdentityToken | None = None
    """None: the manifest asks for none. `POST /api/v1/learner/identity-token` renews it."""
    checkpoint: CheckpointSpec = Field(default_factory=CheckpointSpec)
    log: LogSpec | None = None
    """None: the agent's defaults."""
    has_checkpoint: bool = False
    """Whether the job began with another job's checkpoint, so that even its first attempt has a checkpoint."""
    leftovers: LeftoverSpec | None = None
    """None: the agent ignores leftovers."""
    elastic: ElasticSpec | None = None
    memory: int | None = None  # bytes
    extra: dict[str, float] = Field(default_factory=dict)
    """Other resources of the learner, as in :class:`Resources`. There may be devices among them."""
    evaluation_metrics: EvaluationMetrics = Field(default_factory=EvaluationMetrics)
    mlflow: MlflowSpec | None = None
    """None: the API has no token for it."""
    heartbeat_seconds: float = 3.0
    system_metrics_seconds: float = 5.0
    """Seconds between two samples of system metrics; 0: no samples."""
    grace_seconds: float = 120.0
    max_runtime_seconds: float | None = None
    keep_seconds: float = 0.0
    """How long the learner stays for a look inside after its command has failed."""
