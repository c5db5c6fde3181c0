"""The canonical form of a manifest: names are resolved, defaults are filled in, and it has no credentials.

A job's row keeps ``manifest.model_dump(mode="json", exclude_none=True)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from weft_core.launch import CheckpointSpec, ElasticSpec, EvaluationMetrics, Launcher, Resources
from weft_core.lifecycle.states import JobState
from weft_core.manifest.sweep_models import Sweep, Value, fill, variable, written


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PackageIndex(_Form):
    """A private index of packages."""

    url: str
    secret: str | None = None
    """The name of the secret that holds ``user:password`` or a token."""


class Framework(_Form):
    name: str
    version: str
    """The version in the manifest if an alias maps it, else the image's full version; for ``custom``, the image's
    reference."""
    launcher: Launcher
    command: str
    image: str
    """``horovod:0.28.1-torch2.13`` of the catalogue, or the custom reference."""
    packages: list[str] = Field(default_factory=list)
    """Requirements that the image need not meet."""
    requirements: str | None = None
    """The path of a list of requirements in the code."""
    wheels: list[str] = Field(default_factory=list)
    """Globs of wheels in the code."""
    index: PackageIndex | None = None


class Repository(_Form):
    """A git repository that has the job's code."""

    url: str
    ref: str | None = None
    """A branch, a tag or a commit; None: HEAD."""
    commit: str | None = None
    """The commit that ``ref`` meant at submit."""
    secret: str | None = None
    """The name of the secret that holds ``user:password`` or a token."""
    path: str = ""
    """The folder of it that becomes the folder of the code."""

    @property
    def words(self) -> str:
        """``commit 6f1c… (main) of https://github.com/team/project.git``."""
        named = f" ({self.ref})" if self.ref and self.ref != self.commit else ""
        return f"commit {self.commit}{named} of {self.url}" + (f", folder {self.path}" if self.path else "")


class Place(_Form):
    """A container (bucket) and a prefix in it, without slashes at its ends."""

    container: str
    prefix: str = ""


class TrainingData(Place):
    mode: Literal["download", "stream"] = "download"
    include: list[str] = Field(default_factory=list)
    """Globs of paths below the prefix; none: all."""
    exclude: list[str] = Field(default_factory=list)
    shard: Literal["none", "learner"] = "none"


class TrainingResults(_Form):
    """A place, and the model whose next version the results become. Without a place, they go to the installation's own
    store."""

    container: str | None = None
    prefix: str = ""
    model: str | None = None


class ModelReference(_Form):
    """``model: NAME@VERSION``, a model of the registry; the version is a number, a stage or ``latest``."""

    name: str
    version: str


class S3Connection(_Form):
    auth_url: str
    region: str | None = None
    domain_name: str | None = None
    project_id: str | None = None


class MountConnection(_Form):
    """FfDL's ``mount_volume``: a folder of the machines that learners run on."""

    name: str | None = None
    path: str

    def folder(self, place: Place) -> str:
        """The folder of a ``place`` in it. The place's container is a folder, too."""
        return "/".join(filter(None, (self.path.rstrip("/"), place.container, place.prefix)))


class DataStore(_Form):
    """A data store. It has ``connection``, ``datastore`` or ``mount``; one that only names models has none of the
    three."""

    id: str
    type: Literal["s3", "mount_cos", "s3_datastore", "mount_volume"] = "s3"
    """The manifest's type. All except ``mount_volume`` are S3."""
    connection: S3Connection | None = None
    datastore: str | None = None
    """The name of a data store that the server keeps."""
    mount: MountConnection | None = None
    training_data: TrainingData | None = None
    training_results: TrainingResults | None = None
    pretrained_model: Place | None = None
    wheels: Place | None = None
    model: ModelReference | None = None


class Stall(_Form):
    """The action after all learners have been idle for a time."""

    after_seconds: float
    action: Literal["warn", "end", "fail", "ignore"] = "warn"


class Notify(_Form):
    """A target of notifications: a webhook, or an e-mail address."""

    url: str | None = None
    email: str | None = None
    on: list[JobState]
    format: Literal["json", "slack"] = "json"
    secret: str | None = None
    """The name of the secret that signs requests; with the format ``slack``, of the one that holds the URL."""


class Rule(_Form):
    when: str
    """A condition (:mod:`weft_core.rules`)."""
    then: list[Literal["notify", "halt"]]


Ending = Literal["completed", "failed", "ended"]
"""The end of a job for which another job waits; ``ended``: any."""


class After(_Form):
    """A job that must end before this job starts."""

    job: str
    on: Ending = "completed"


class Schedule(_Form):
    """The times at which a schedule starts jobs."""

    cron: str
    timezone: str = "UTC"
    overlap: Literal["skip", "queue"] = "skip"


class Identity(_Form):
    """The identity token of the learners, for a service that trusts this installation."""

    audience: str
    subject: Literal["job", "project"] = "job"


class Manifest(_Form):
    """A job, as its user has described it."""

    name: str
    description: str = ""
    version: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    engine: str
    priority: int = 50
    learners: int = 1
    elastic: ElasticSpec | None = None
    profile: str | None = None
    resources: Resources
    framework: Framework
    repo: Repository | None = None
    """None: the code comes with the manifest, or the command needs none."""
    data_stores: list[DataStore] = Field(default_factory=list)
    checkpoint: CheckpointSpec = Field(default_factory=CheckpointSpec)
    after: list[After] = Field(default_factory=list)
    stall: Stall | None = None
    """None: as the installation's settings have it."""
    retries: int = 0
    max_runtime_seconds: float | None = None
    keep_on_failure_seconds: float | None = None
    env: dict[str, str] = Field(default_factory=dict)
    secrets: dict[str, str] = Field(default_factory=dict)
    """Names of environment variables, and for each the name of a secret that the server keeps."""
    identity: Identity | None = None
    """None: the learners get no identity token."""
    results: list[str] = Field(default_factory=list)
    """Globs of files in the folder of the code that are stored besides RESULT_DIR."""
    keep_leftovers: bool = True
    evaluation_metrics: EvaluationMetrics = Field(default_factory=EvaluationMetrics)
    notify: list[Notify] = Field(default_factory=list)
    rules: list[Rule] = Field(default_factory=list)
    parameters: dict[str, Value] = Field(default_factory=dict)
    """Values for the program, which a sweep has chosen or a user has written."""
    sweep: Sweep | None = None
    """None: the manifest is of one job."""
    schedule: Schedule | None = None
    on: ModelReference | None = None
    """The model and the stage whose promotions start a job."""
    trigger: dict[str, str] | None = None
    """Variables that say what has started the job. Only jobs of schedules have them; no user writes them."""
    notes: list[str] = Field(default_factory=list)
    """Hints for the user that are not errors: ``framework version 1.5.0-py3 runs on image tensorflow:2.21.0``."""

    @property
    def command(self) -> str:
        """The command with the values of the parameters that it names."""
        return fill(self.framework.command, self.parameters)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that the manifest sets, those of the parameters included."""
        own = {name: fill(text, self.parameters) for name, text in self.env.items()}
        return own | {variable(name): written(value) for name, value in self.parameters.items()} | (self.trigger or {})

    @property
    def inputs(self) -> list[tuple[DataStore, TrainingData]]:
        """The training data, in the order of the manifest."""
        return [(store, store.training_data) for store in self.data_stores if store.training_data]

    @property
    def results_place(self) -> tuple[DataStore, Place] | None:
        """The store for the results; None: the installation's own store (a mounted folder gets a copy)."""
        for store in self.data_stores:
            results = store.training_results
            if results and results.container and not store.mount:
                return store, Place(container=results.container, prefix=results.prefix)
        return None

    @property
    def registers(self) -> str | None:
        """The model whose next version the results become."""
        found = [store.training_results.model for store in self.data_stores if store.training_results]
        return found[0] if found else None

    @property
    def pretrained(self) -> tuple[DataStore, Place | ModelReference] | None:
        """The source of the pretrained model: a place in the data store, or the registry."""
        for store in self.data_stores:
            place = store.pretrained_model or store.model
            if place:
                return store, place
        return None


@dataclass(frozen=True)
class Credentials:
    """The credentials of a data store. They are lifted out of the manifest and kept encrypted."""

    user_name: str
    password: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    ca: str | None = field(default=None, repr=False)
    """Certificates (PEM) of a private authority to trust for this store. They are not secret, but they belong to the
    credentials."""


@dataclass(frozen=True)
class ParsedManifest:
    manifest: Manifest
    credentials: dict[str, Credentials]
    """By the id of the data store."""
    position: Callable[[str], tuple[int | None, int | None]] = field(repr=False, compare=False)
    """Line and column, from 1, of the value at a path, or of the value that holds it; None for values from
    ``--set``."""
