"""Settings of the service: ``weft.toml``, then ``WEFT_…`` environment variables (nested with ``__``), the latter win.

An object that is built once by each process's entry point and passed on; never read at import time.
"""

from __future__ import annotations

import os
import re
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from weft_core import postgres_url
from weft_core.engine_settings import EngineSettings, LocalSettings, PlacementSettings
from weft_core.oidc_settings import OidcSettings

_ORIGIN = re.compile(r"https?://(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:]+\])(?::[1-9]\d{0,4})?")

_HOST = re.compile(r"(?!\d+(\.|$))[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


_PROVIDER = re.compile(r"[a-z0-9][a-z0-9-]{0,29}")


_EXPORT = re.compile(r"(?:file|syslog):/.+|syslog:(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[1-9]\d{0,4}")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid")


class S3Settings(_Section):
    """The installation's own store: code bundles, exit reports, results of jobs that name no store, old logs."""

    endpoint: str = "http://127.0.0.1:8333"
    """The URL of the store, as the API and the workers reach it."""
    public_endpoint: str | None = None
    """The same store as learners and the CLI reach it, for presigned URLs; default: ``endpoint``."""
    region: str = "us-east-1"
    """The region that requests to the store are signed for."""
    access_key: str = ""
    """The access key (its ID)."""
    secret_key: SecretStr = SecretStr("")
    """The secret key."""
    bucket: str = "weft"
    """The bucket, which nothing else should use; the set-up creates it."""


class DatastoreSettings(_Section):
    """The data store ``default``, which ``python -m weft_core.setup`` creates: for the project ``default``, or for
    every project, if the store issues temporary keys."""

    endpoint: str = ""
    """The URL of the store, as the API, learners and users reach it; default: the installation's own store,
    ``s3.public_endpoint``."""
    region: str = "us-east-1"
    """The region of its buckets."""
    access_key: str = ""
    """The access key. It must not give access to the installation's own bucket. Jobs get it, unless the store issues
    temporary keys. Empty: no data store is created."""
    secret_key: SecretStr = SecretStr("")
    """The secret key that belongs to ``access_key``."""
    temporary_keys: bool = False
    """Whether the store issues temporary keys (STS), as SeaweedFS, AWS and MinIO do. Then each project has buckets of
    its own in the store, a learner gets keys for its job's inputs and results only, and ``access_key`` stays on the
    server."""
    sts_endpoint: str = ""
    """The URL that issues the keys; default: the store's own ``endpoint``."""
    role: str = ""
    """The ARN of a role to assume for the keys (`AssumeRole`); default: none, and the keys are those of a federated
    user (`GetFederationToken`)."""


class ApiSettings(_Section):
    """The HTTP API and the dashboard."""

    host: str = "127.0.0.1"
    """The address to listen at."""
    port: int = 8080
    """The port to listen at."""
    public_url: str = "http://127.0.0.1:8080"
    """The URL at which learners and users reach the API."""
    peer_address: str = ""
    """The host and port at which the other API processes reach this one, for tunnels into jobs. Default: the address at
    which a request came in, which is right unless a proxy on the same machine passes requests on to 127.0.0.1."""
    secure_cookie: bool | None = None
    """Whether browsers send the session cookie over https only; default: if ``public_url`` or the request is https."""
    profile_file: Path | None = None
    """The CLI's profile file for this installation, which holds a token. The sign-in page names it to browsers on the
    API's own machine. ``weft up`` sets it."""
    ffdl_origins: list[str] = Field(default_factory=list)
    """Origins, such as ``https://ffdl.example.org``, whose pages may use FfDL's API (FfDL's own web page)."""

    @field_validator("ffdl_origins")
    @classmethod
    def _origins(cls, values: list[str]) -> list[str]:
        for value in values:
            if not _ORIGIN.fullmatch(value):
                raise ValueError(
                    "expected origins as browsers write them: https://ffdl.example.org or http://host:8080"
                )
        return values


class ProfileSettings(PlacementSettings):
    """A size for each learner, which manifests name with ``profile``, and the nodes on which such learners run."""

    cpus: float = 1
    """CPUs of each learner."""
    gpus: int = 0
    """GPUs of each learner."""
    gpu_type: str | None = None
    """The type of the GPUs, as in a manifest's ``gpu_type``; default: any."""
    memory: int = 1 << 30
    """Memory of each learner, in bytes."""
    storage: int | None = None
    """Disk space of each learner, in bytes, unless the manifest has its own ``storage``; default: no limit."""
    extra: dict[str, float] = Field(default_factory=dict)
    """Other resources of each learner, by the engine's own names (extended of Kubernetes, custom of Ray)."""


class ImageSettings(_Section):
    """The images that learners run in."""

    aliases: dict[str, str] = Field(default_factory=dict)
    """Versions that manifests may ask for, and the images of the catalogue that they mean:
    ``"tensorflow:1.5.0-py3" = "tensorflow:2.21"``."""
    repository: str = "weft"
    """The first part of the references of container images: ``weft`` gives ``weft/pytorch:2.13.0``."""
    package_index: str | None = None
    """The index (PEP 503) from which the packages of jobs come. Without it, the index that pip is configured for where
    learners run; if there is no such configuration, PyPI."""


class OutgoingSettings(_Section):
    """The addresses that users name and the service calls: those of data stores, git repositories and webhooks."""

    allow: list[str] = Field(default_factory=list)
    """Hosts (``git.example.com``) and networks (``10.20.0.0/16``) of your own that the service may call. Without an
    entry here, it calls public addresses only, and by https only. The stores of the sections ``s3`` and ``datastore``
    need no entry."""

    @field_validator("allow")
    @classmethod
    def _hosts_or_networks(cls, values: list[str]) -> list[str]:
        for value in values:
            if not _is_network(value) and not _HOST.fullmatch(value):
                raise ValueError(f"expected hosts such as git.example.com and networks such as 10.0.0.0/8: {value!r}")
        return values


class SmtpSettings(_Section):
    """The server that sends e-mails to the addresses in ``notify`` of manifests."""

    host: str = ""
    """The host of the SMTP server. Empty: manifests with e-mail addresses are refused."""
    port: int = Field(587, ge=1, le=65535)
    """The port of the SMTP server."""
    tls: Literal["starttls", "tls", "none"] = "starttls"
    """How the connection is encrypted: ``starttls`` (usually port 587), ``tls`` from the first byte (usually port 465),
    or ``none``."""
    user: str = ""
    """The user name for the SMTP server. Empty: no sign-in."""
    password: SecretStr = SecretStr("")
    """The password that belongs to ``user``."""
    sender: str = ""
    """The address that the e-mails come from. Required if ``host`` is set."""

    @model_validator(mode="after")
    def _has_sender(self) -> SmtpSettings:
        if self.host and "@" not in self.sender:
            raise ValueError("sender: expected the address that e-mails come from, such as weft@example.com")
        return self


class NotifySettings(_Section):
    """How notifications of jobs are sent. The section ``outgoing`` says which webhooks may be called."""

    retry_seconds: float = Field(86_400, ge=0)
    """How long after its event a notification is tried again. After that, it has failed."""
    smtp: SmtpSettings = Field(default_factory=SmtpSettings)


def _is_network(text: str) -> bool:
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True


class LimitSettings(_Section):
    """How large manifests, code, logs and metrics may be."""

    manifest_bytes: int = 1 << 20
    """The size of a manifest."""
    bundle_bytes: int = 512 << 20
    """The size of a code bundle, the zip that is sent."""
    bundle_unpacked_bytes: int = 2 << 30
    """The size of a code bundle's files, unpacked, all together."""
    bundle_files: int = 20_000
    """The number of entries in a code bundle, files and folders."""
    bundle_ratio: int = 200
    """The largest ratio of unpacked to packed size of an entry in a code bundle, for entries above 1 MiB."""
    log_bytes_per_job: int = 4 << 30
    """The size of a job's log; the API takes no more lines after that."""
    metric_points_per_job: int = 5_000_000
    """The number of values that a training reports; later values are dropped, with a warning in the job's events."""
    metric_bytes_per_job: int = 1 << 30
    """The size of the values that a training reports; later values are dropped, with a warning in the job's events."""
    system_points_per_job: int = 20_000_000
    """The number of values of CPU, memory, disk, network and GPUs, of all learners together."""
    metric_series_per_job: int = 10_000
    """The number of series that a training reports, of all learners and attempts together. System metrics may have ten
    times as many."""
    mlflow_artifact_bytes: int = Field(20 << 30, ge=0)
    """The size of the artifacts that a job, or a run of no job, may log with MLflow."""
    log_lines_per_second: int = Field(10_000, ge=0)
    """The lines that a job may log in a second, shared evenly by its learners. The agents leave out the rest. 0: no
    limit."""
    log_bytes_per_second: int = Field(2 << 20, ge=0)
    """The bytes that a job may log in a second, likewise."""
    log_burst_seconds: float = Field(20.0, gt=0)
    """A job that was quiet may log this many seconds' worth of lines at once, beyond the two rates above."""
    log_spool_bytes: int = Field(512 << 20, ge=1 << 20)
    """The size of the lines that wait on a learner's disk, for example while the API is away."""
    log_file_bytes: int = Field(1 << 30, ge=0)
    """The size of a learner's ``training-log.txt`` among the results. It has the lines that the log leaves out, too."""
    tunnels_per_job: int = Field(64, ge=0)
    """The tunnels (``weft exec``, ``weft shell``, ``weft cp``, each connection of ``weft forward``) into a job that may
    be open at once in one API process. 0: no limit."""
    tunnels_per_user: int = Field(128, ge=0)
    """The tunnels that a user may have open at once in one API process. 0: no limit."""
    tunnel_bytes: int = Field(1 << 40, ge=0)
    """The bytes that a tunnel may carry, in both directions together. 0: no limit."""
    tunnel_idle_seconds: float = Field(3600.0, ge=0)
    """How long a tunnel may carry nothing before it is closed. 0: for ever."""
    requests_per_minute: int = Field(6000, ge=0)
    """The requests that may come with one token, or one session, in a minute. 0: no limit."""
    requests_burst: int = Field(1000, ge=1)
    """The requests that may come with it at once, after it was not used for a while."""
    learner_requests_per_minute: int = Field(300_000, ge=0)
    """The requests that all learners of an attempt may make in a minute. Each makes about 150. 0: no limit."""
    leftover_bytes: int = Field(1 << 30, ge=0)
    """The size of the files that a learner's program leaves in the folder of the code and that the results keep without
    being asked to. 0: none are kept."""


class TimingSettings(_Section):
    """Intervals and time limits, in seconds (``absences`` is a number)."""

    sweep: float = 3.0
    """How often each worker looks for due jobs of which it got no message; varies by 30 %."""
    lease: float = 30.0
    """How long a worker holds a job for one step. If the worker dies, another worker can take the job after that."""
    heartbeat: float = 3.0
    """How often the agent of a learner reports. A stop reaches the learner within this time."""
    system_metrics: float = Field(default=5.0, ge=0)
    """How often the agent measures CPU, memory, disk, network and GPUs; 0: never."""
    silence: float = 30.0
    """How long a learner must have sent no heartbeat before it can count as lost."""
    verdict: float = 90.0
    """How long a failure is left undecided while learners on other nodes are silent: if a node was lost, the failure is
    not the job's fault."""
    absences: int = 3
    """How many times an engine that answers must also have missed the learner before it counts as lost."""
    start_timeout: float = 900.0
    """The time in which all learners of an attempt must have started. After that, the attempt is stopped, and the job
    is queued again."""
    grace: float = 120.0
    """The time from SIGTERM to SIGKILL when learners are stopped, in which they can save a checkpoint."""
    orphan_grace: float = 60.0
    """How long learners on an engine that belong to no open attempt may run before they are stopped."""
    log_settle: float = Field(10.0, ge=0)
    """The time from the end of an attempt until its log is moved to S3."""
    elastic_cooldown: float = 60.0
    """How long an elastic attempt that has lost or gained a learner waits for more; doubled with each further loss."""
    stall: float = 1800.0
    """How long all learners of a job may be idle (no log line, no work of CPU or GPU) before it counts as stalled, for
    manifests without ``stall``; 0: no check."""
    no_output: float = 900.0
    """How long a job may train without writing into RESULT_DIR or CHECKPOINT_DIR before a warning; 0: no check."""


class FairShareSettings(_Section):
    """How projects share the engines (docs/fair-share.md)."""

    half_life: float = Field(604_800.0, gt=0)
    """After how many seconds past use counts half. The default is a week."""
    gpu_weight: float = Field(16.0, ge=0)
    """How many CPUs a GPU counts for in what a project has used."""
    preemption: Literal["off", "guaranteed", "priority"] = "guaranteed"
    """Which jobs may have running jobs saved and put back into the queue: none (``off``), jobs within the guarantee of
    their project, to take back what other projects have borrowed (``guaranteed``), or also jobs of a higher priority
    within the same project (``priority``)."""


class NodeSettings(_Section):
    """When a node that is blamed again and again gets no more learners (docs/engines.md)."""

    blames: int = Field(3, ge=0)
    """How many different jobs must blame a node. 0: no node is excluded."""
    blame_days: float = Field(7.0, gt=0, le=365)
    """For how many days a job's blame counts."""


class TelemetrySettings(_Section):
    """Metrics and traces of the service itself (docs/observability.md)."""

    metrics_port: int = Field(default=0, ge=0, le=65535)
    """The port at which a worker serves its Prometheus metrics (those of the API are at ``/metrics``); 0: none."""
    metrics_token: SecretStr = SecretStr("")
    """The token that the API asks for at ``/metrics`` (``Authorization: Bearer``). Empty: the API answers there to its
    own machine only, and not through a proxy."""
    otlp_endpoint: str = ""
    """The base URL of an OpenTelemetry collector that takes OTLP over HTTP, for traces; empty: no traces."""


class AgeSettings(_Section):
    """How long something is kept."""

    days: int | None = Field(None, ge=1)
    """How many days; none: for ever."""


class KeepSettings(AgeSettings):
    """How long something is kept, and how much of it."""

    bytes: int | None = Field(None, ge=0)
    """How many bytes of each project; then what belongs to the jobs that ended first is removed. None: any number."""


class RetentionSettings(_Section):
    """Limits for the data of ended jobs, in projects with no retention of their own (docs/retention.md)."""

    logs: KeepSettings = Field(default_factory=KeepSettings)
    """The lines of their logs."""
    metrics: KeepSettings = Field(default_factory=KeepSettings)
    """The values of their metrics, but for the newest and the best ones."""
    results: KeepSettings = Field(default_factory=KeepSettings)
    """Results and checkpoints in the installation's own store, but for those that are a model's version."""
    events: AgeSettings = Field(default_factory=AgeSettings)
    """Their events."""
    code: AgeSettings = Field(default_factory=AgeSettings)
    """Code that no job and no model uses any more, counted from its upload."""


class AuditSettings(_Section):
    """The audit trail (docs/audit.md)."""

    retention_days: int = Field(400, ge=30)
    """How many days records are kept."""
    export: str = ""
    """Where the workers send each record as a line of JSON, too: ``file:/path``, ``syslog:HOST:PORT`` (UDP) or
    ``syslog:/path`` (a socket such as ``/dev/log``). Empty: nowhere."""

    @field_validator("export")
    @classmethod
    def _target(cls, value: str) -> str:
        if value and not _EXPORT.fullmatch(value):
            raise ValueError(f"expected file:/path, syslog:HOST:PORT or syslog:/dev/log: {value!r}")
        return value


class IdentitySettings(_Section):
    """Identity tokens of learners, for clouds and services that trust this installation (docs/cloud-identity.md)."""

    issuer: str = ""
    """The https URL under which the verifiers reach this API. They read ``/.well-known/openid-configuration`` below it.
    Empty: manifests with ``identity`` are refused."""
    key_days: int = Field(30, ge=2, le=3650)
    """How many days a key signs tokens. Then a new key takes its place."""

    @field_validator("issuer")
    @classmethod
    def _is_url(cls, value: str) -> str:
        local = re.fullmatch(r"http://(127\.0\.0\.1|localhost)(:\d+)?", value)
        if value and not local and not re.fullmatch(r"https://[A-Za-z0-9.:-]+(/[A-Za-z0-9._~/-]*[A-Za-z0-9])?", value):
            raise ValueError(f"expected an https URL without a slash at its end: {value!r}")
        return value


def _local() -> dict[str, EngineSettings]:
    return {"local": LocalSettings()}


class Settings(BaseSettings):
    """Everything that the API, the workers and the set-up read."""

    model_config = SettingsConfigDict(env_prefix="WEFT_", env_nested_delimiter="__", extra="forbid")

    home: Path = Path("~/.weft")
    """The folder of this machine's state: environments, the local engine's runs, caches, logs of the service."""
    database_url: SecretStr = SecretStr("postgresql+psycopg:///weft")
    """The URL of the PostgreSQL database. A URL that leads to PgBouncer in its mode ``transaction`` ends with
    ``?pgbouncer=true`` (docs/scaling.md)."""
    redis_url: SecretStr = SecretStr("redis://127.0.0.1:6379/0")
    """The URL of Redis, which carries messages between the processes. It stores nothing that must last."""
    secret_keys: Annotated[list[SecretStr], NoDecode] = Field(default_factory=list)
    """Keys that encrypt stored credentials; ``python -m weft_core.secrets`` prints one. The first key encrypts, all
    keys decrypt. In the environment: separated by commas."""
    multi_tenant: bool = False
    """Whether to refuse engines that do not isolate tenants from each other (types ``local`` and ``ray``)."""
    default_engine: str = ""
    """The engine for manifests that name none; default: ``local`` if there is such an engine, else the first one."""
    startup_patience: float = Field(60.0, gt=0)
    """How many seconds a part of ``weft up`` may do nothing at all while it starts. After that, ``weft up`` starts it
    again, with twice the patience."""

    s3: S3Settings = Field(default_factory=S3Settings)
    datastore: DatastoreSettings = Field(default_factory=DatastoreSettings)
    api: ApiSettings = Field(default_factory=ApiSettings)
    oidc: dict[str, OidcSettings] = Field(default_factory=dict)
    engines: dict[str, EngineSettings] = Field(default_factory=_local)
    profiles: dict[str, ProfileSettings] = Field(default_factory=dict)
    images: ImageSettings = Field(default_factory=ImageSettings)
    outgoing: OutgoingSettings = Field(default_factory=OutgoingSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    timings: TimingSettings = Field(default_factory=TimingSettings)
    fair_share: FairShareSettings = Field(default_factory=FairShareSettings)
    nodes: NodeSettings = Field(default_factory=NodeSettings)
    notify: NotifySettings = Field(default_factory=NotifySettings)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings)
    retention: RetentionSettings = Field(default_factory=RetentionSettings)
    audit: AuditSettings = Field(default_factory=AuditSettings)
    identity: IdentitySettings = Field(default_factory=IdentitySettings)

    @model_validator(mode="before")
    @classmethod
    def _split_keys(cls, values: object) -> object:
        if isinstance(values, dict) and isinstance(values.get("secret_keys"), str):
            values["secret_keys"] = [key for key in values["secret_keys"].split(",") if key]
        return values

    @field_validator("database_url")
    @classmethod
    def _pooler(cls, value: SecretStr) -> SecretStr:
        postgres_url.check(value.get_secret_value())
        return value

    @field_validator("oidc")
    @classmethod
    def _providers(cls, values: dict[str, OidcSettings]) -> dict[str, OidcSettings]:
        for name in values:
            if not _PROVIDER.fullmatch(name):
                raise ValueError(f"expected names of lower-case letters, digits and hyphens: {name!r}")
        names: dict[str, str] = {}
        for name, provider in values.items():
            # A person is known by the issuer, so the groups of one section would take away the roles of the other.
            if (other := names.setdefault(provider.issuer.rstrip("/"), name)) != name:
                raise ValueError(
                    f"{other!r} and {name!r} have the same issuer {provider.issuer!r}: expected a different one for "
                    "each provider; name all groups in one section"
                )
        return values

    @model_validator(mode="after")
    def _checks(self) -> Settings:
        self.home = self.home.expanduser()
        if not self.engines:
            raise ValueError("engines: none is left; at least one is needed")
        if not self.default_engine:
            self.default_engine = "local" if "local" in self.engines else next(iter(self.engines))
        if self.default_engine not in self.engines:
            raise ValueError(f"default_engine {self.default_engine!r} is none of: {', '.join(sorted(self.engines))}")
        shared = [(name, engine.type) for name, engine in self.engines.items() if not engine.isolates_tenants]
        if self.multi_tenant and shared:
            name, kind = shared[0]
            raise ValueError(
                f"engine {name!r} is of type {kind}, which is no security boundary: refused with multi_tenant = true"
            )
        return self

    def own_urls(self) -> tuple[str, ...]:
        """The URLs that learners use because an administrator named them, not a user."""
        found = (self.s3.public_endpoint or self.s3.endpoint, self.datastore.endpoint, self.images.package_index)
        return tuple(dict.fromkeys(url for url in found if url))

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        toml = TomlConfigSettingsSource(settings_cls, os.environ.get("WEFT_CONFIG", "weft.toml"))
        return init_settings, env_settings, toml


def load_settings() -> Settings:
    """The settings from ``$WEFT_CONFIG`` (default ``weft.toml``) and the environment.

    Raises:
        pydantic.ValidationError: a value or a key is wrong.
    """
    return Settings()
