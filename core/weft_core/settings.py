"""Settings of the service: ``weft.toml``, then ``WEFT_…`` environment variables (nested with ``__``), the latter win.

An object that is built once by each process's entry point and passed on; never read at import time.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from weft_core.engine_settings import EngineSettings, LocalSettings, PlacementSettings

_ORIGIN = re.compile(r"https?://(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:]+\])(?::[1-9]\d{0,4})?")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid")


class S3Settings(_Section):
    """The installation's own store: code bundles, exit reports, results of jobs that name no store, cold logs."""

    endpoint: str = "http://127.0.0.1:8333"
    public_endpoint: str | None = None
    """The same store as learners and the CLI reach it, for presigned URLs; default: ``endpoint``."""
    region: str = "us-east-1"
    access_key: str = ""
    secret_key: SecretStr = SecretStr("")
    bucket: str = "weft"


class DatastoreSettings(_Section):
    """The data store `default` of the project `default`, which the set-up makes (``python -m weft_core.setup``)."""

    endpoint: str = ""
    """As the API, learners and users reach it; default: the installation's own store, ``s3.public_endpoint``."""
    region: str = "us-east-1"
    access_key: str = ""
    """Users' jobs get it, so it must not open the installation's own bucket. Empty: no data store is made."""
    secret_key: SecretStr = SecretStr("")


class ApiSettings(_Section):
    host: str = "127.0.0.1"
    port: int = 8080
    public_url: str = "http://127.0.0.1:8080"
    """The URL that learners and users reach the API at."""
    secure_cookie: bool | None = None
    """Whether browsers send a session's cookie over https only; default: if ``public_url`` or the request is https."""
    profile_file: Path | None = None
    """The CLI's profile file of this installation, which holds a token: `weft up` says which. The sign-in page names it
    to browsers of the API's own machine."""
    ffdl_origins: list[str] = Field(default_factory=list)
    """Origins (``https://ffdl.example.org``) whose pages may use FfDL's API, such as FfDL's own web page."""

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
    """A named size for manifests' ``profile:``, and where it runs; per learner, memory and storage in bytes."""

    cpus: float = 1
    gpus: int = 0
    gpu_type: str | None = None
    memory: int = 1 << 30
    storage: int | None = None
    extra: dict[str, float] = Field(default_factory=dict)
    """Other resources by the engine's own names: Kubernetes' extended, Ray's custom ones."""


class ImageSettings(_Section):
    aliases: dict[str, str] = Field(default_factory=dict)
    """``"tensorflow:1.5.0-py3" = "tensorflow:2.21"``: versions that manifests ask for, mapped to the catalogue's."""
    repository: str = "weft"
    """Prefix of image references on container engines."""


class LimitSettings(_Section):
    manifest_bytes: int = 1 << 20
    bundle_bytes: int = 512 << 20
    bundle_unpacked_bytes: int = 2 << 30
    bundle_files: int = 20_000
    bundle_ratio: int = 200
    """Uncompressed : compressed size that an entry may have (above 1 MiB uncompressed)."""
    log_bytes_per_job: int = 4 << 30
    metric_points_per_job: int = 5_000_000
    """Values that a training reports; what comes after is dropped, with a warning in the job's events."""
    metric_bytes_per_job: int = 1 << 30
    system_points_per_job: int = 20_000_000
    """Of CPU, memory, disk, network and GPUs; all learners together."""
    metric_series_per_job: int = 10_000
    """Of the training's own, all learners and attempts together; ten times as many of the system's."""
    log_lines_per_second: int = Field(10_000, ge=0)
    """Of a job, shared evenly by its learners, whose agents leave out what is more; 0: as many as there are."""
    log_bytes_per_second: int = Field(2 << 20, ge=0)
    log_burst_seconds: float = Field(20.0, gt=0)
    """For how long a job that was quiet may log without any such limit: so many seconds' worth of lines at once."""
    log_spool_bytes: int = Field(512 << 20, ge=1 << 20)
    """On a learner's disk, of lines that the API has not taken yet, as it is away, say."""
    log_file_bytes: int = Field(1 << 30, ge=0)
    """Of a learner's training-log.txt, which has the lines that were left out elsewhere, and is stored as a result."""


class TimingSettings(_Section):
    """Seconds."""

    sweep: float = 3.0
    lease: float = 30.0
    heartbeat: float = 3.0
    """How often a learner's agent reports; a stop reaches it within this."""
    system_metrics: float = Field(default=5.0, ge=0)
    """How often a learner's CPU, memory, disk, network and GPUs are measured; 0: never."""
    silence: float = 30.0
    """Heartbeat silence after which an absent learner counts as lost."""
    verdict: float = 90.0
    """How long a failure waits for the fate of learners on other nodes: a lost node is not the job's fault."""
    absences: int = 3
    """Confirmed absences from an answering engine that it takes besides the silence."""
    start_timeout: float = 900.0
    """From launch to the last start grant; then the whole attempt is taken back and queued again."""
    grace: float = 120.0
    """From SIGTERM to SIGKILL, so that a checkpoint can be saved."""
    orphan_grace: float = 60.0
    log_settle: float = Field(10.0, ge=0)
    """From an attempt's end until its log is moved to S3."""
    elastic_cooldown: float = 60.0
    """After an elastic attempt has lost or been given a learner, before it is given more; doubled with each loss."""
    stall: float = 1800.0
    """How long all learners of a job may be idle (no log, no CPU, no GPU) before it is said to make no progress; 0:
    for ever. A manifest's ``stall`` goes first."""
    no_output: float = 900.0
    """How long a job may train without ever writing into RESULT_DIR or CHECKPOINT_DIR before a warning; 0: for ever."""


class TelemetrySettings(_Section):
    """What the service tells of itself (docs/observability.md)."""

    metrics_port: int = Field(default=0, ge=0, le=65535)
    """Where a worker serves its Prometheus metrics (the API has them at ``/metrics``); 0: nowhere."""
    otlp_endpoint: str = ""
    """Where traces go: the base URL of an OpenTelemetry collector's OTLP over HTTP; empty: nowhere."""


def _local() -> dict[str, EngineSettings]:
    return {"local": LocalSettings()}


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="WEFT_", env_nested_delimiter="__", extra="forbid")

    home: Path = Path("~/.weft")
    """Folder of this machine's state: environments, the local engine's runs, caches, logs of the service."""
    database_url: SecretStr = SecretStr("postgresql+psycopg:///weft")
    redis_url: SecretStr = SecretStr("redis://127.0.0.1:6379/0")
    secret_keys: Annotated[list[SecretStr], NoDecode] = Field(default_factory=list)
    """Fernet keys: the first encrypts, all decrypt. In the environment: separated by commas."""
    multi_tenant: bool = False
    """Refuses engines that are no boundary between tenants (``local``, ``ray``)."""
    default_engine: str = ""
    """For manifests that name none; default: ``local`` where it is one of the engines, else the first."""
    startup_patience: float = Field(60.0, gt=0)
    """Seconds for which a part of ``weft up`` may do nothing at all while it starts; then it is started again, with
    twice the patience."""

    s3: S3Settings = Field(default_factory=S3Settings)
    datastore: DatastoreSettings = Field(default_factory=DatastoreSettings)
    api: ApiSettings = Field(default_factory=ApiSettings)
    engines: dict[str, EngineSettings] = Field(default_factory=_local)
    profiles: dict[str, ProfileSettings] = Field(default_factory=dict)
    images: ImageSettings = Field(default_factory=ImageSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    timings: TimingSettings = Field(default_factory=TimingSettings)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings)

    @model_validator(mode="before")
    @classmethod
    def _split_keys(cls, values: object) -> object:
        if isinstance(values, dict) and isinstance(values.get("secret_keys"), str):
            values["secret_keys"] = [key for key in values["secret_keys"].split(",") if key]
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
        # On the same machine, or with the same cluster token, one tenant's code reaches another's.
        open_ones = [(name, engine.type) for name, engine in self.engines.items() if engine.type != "kubernetes"]
        if self.multi_tenant and open_ones:
            name, kind = open_ones[0]
            raise ValueError(
                f"engine {name!r} is of type {kind}, which is no security boundary: refused with multi_tenant = true"
            )
        return self

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
