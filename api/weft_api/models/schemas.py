"""Models on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

_SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_FILES: dict[str, Any] = {"files": 3, "bytes": 4715120, "sha256": _SHA256}
_VERSION: dict[str, Any] = {
    "model": "mnist",
    "version": 3,
    "reference": "mnist@3",
    "stages": ["production"],
    "job": "job-4k9x2m7qd1ze",
    "user": "admin",
    "parent": "mnist@2",
    "files": _FILES,
    "place": "cos:models/mnist/job-4k9x2m7qd1ze/",
    "created_at": "2026-01-31T08:21:44Z",
    "job_name": "mnist-horovod",
    "description": "Two learners, batch 64",
    "notes": "Best on the **night** images.",
    "metrics": {"accuracy": {"last": 0.984, "min": 0.11, "max": 0.986}},
}
_LINEAGE: dict[str, Any] = {
    "job": {"id": "job-4k9x2m7qd1ze", "name": "mnist-horovod", "rerun_of": None},
    "code_sha256": _SHA256,
    "data": {"files": 4, "bytes": 545112, "sha256": _SHA256},
    "pretrained": _FILES,
    "parent": {"id": "mv-0d3k8s6yq2fa", "model": "mnist", "version": 2},
    "image": {"reference": "horovod:0.28.1-torch2.13", "digest": f"sha256:{_SHA256}"},
    "manifest": {"name": "mnist-horovod", "learners": 2},
    "metrics": {"accuracy": {"last": 0.984, "min": 0.11, "max": 0.986, "step": 900}},
    "run": {
        "engine": "local",
        "learners": 2,
        "attempt": 1,
        "failures": 0,
        "exit_code": 0,
        "submitted_at": "2026-01-31T08:15:02Z",
        "started_at": "2026-01-31T08:15:09Z",
        "ended_at": "2026-01-31T08:21:44Z",
        "seconds": 395.0,
    },
}
_PROMOTION: dict[str, Any] = {
    "stage": "production",
    "version": 3,
    "user": "admin",
    "at": "2026-01-31T09:00:00Z",
}
_MODEL: dict[str, Any] = {
    "name": "mnist",
    "latest": 3,
    "versions": 3,
    "stages": {"production": 3, "staging": 2},
    "created_at": "2026-01-12T10:11:12Z",
    "updated_at": "2026-01-31T09:00:00Z",
}


def _examples(*examples: dict[str, Any], title: str | None = None) -> ConfigDict:
    return ConfigDict(title=title, json_schema_extra={"examples": list(examples)})


class FilesSummary(BaseModel):
    files: int
    bytes: int
    sha256: str = Field(
        description="SHA-256 of the sorted lines `key<TAB>size`. Keys are relative to the version's place."
    )


class VersionMetric(BaseModel):
    last: float | None = None
    min: float | None = None
    max: float | None = None


class VersionView(BaseModel):
    """The results of a job, under a number. Only the notes of a version change, and the stages that point at it."""

    model_config = _examples(_VERSION, title="ModelVersion")

    model: str
    version: int
    reference: str
    stages: list[str]
    job: str = Field(description="The job that produced the results. It may have been deleted since.")
    user: str
    parent: str | None = Field(description="The version that the job started from, under its name at that time.")
    files: FilesSummary | None = Field(
        description="The files at the time of the registration. Null if the store could not list them."
    )
    place: str | None = Field(
        description="The place in the user's own store. Null if the files are in the installation's own store."
    )
    created_at: datetime
    job_name: str = Field(default="", description="The job's name at the time of the registration.")
    description: str = Field(default="", description="The job's description at that time.")
    notes: str = Field(default="", description="What the project's users have written down about the version.")
    metrics: dict[str, VersionMetric] = Field(
        default={}, description="The job's metrics at that time: those of learner 1's training, the first 30 by name."
    )


class VersionDetail(VersionView):
    """A version with its lineage."""

    model_config = _examples(
        {**_VERSION, "lineage": _LINEAGE, "children": ["mnist-tuned@1"]}, title="ModelVersionDetail"
    )

    lineage: dict[str, Any] = Field(
        description="The origin of the version: job, code_sha256, data (files, bytes, and the SHA-256 of the keys, "
        "ETags and sizes), pretrained (the same of the pretrained model), parent, image with its digest, the canonical "
        "manifest (without credentials), metrics, run."
    )
    children: list[str] = Field(description="Versions whose jobs started from this version; at most 100.")


class ModelView(BaseModel):
    model_config = _examples(_MODEL, title="Model")

    name: str
    latest: int | None = Field(description="Number of the highest version.")
    versions: int = Field(description="Number of versions.")
    stages: dict[str, int] = Field(description="For each stage, the number of the version that it points at.")
    created_at: datetime
    updated_at: datetime = Field(description="When a version was last registered, or a stage last moved.")


class PromotionView(BaseModel):
    stage: str
    version: int | None = Field(description="Null if the stage was removed.")
    user: str
    at: datetime


class ModelDetail(ModelView):
    """A model with the history of its stages."""

    model_config = _examples({**_MODEL, "promotions": [_PROMOTION]}, title="ModelDetail")

    promotions: list[PromotionView] = Field(description="Newest first; at most 100.")


class ModelPage(BaseModel):
    models: list[ModelView]
    next_cursor: str | None = Field(description="The `cursor` of the next page; null on the last page.")


class VersionPage(BaseModel):
    versions: list[VersionView]
    next_cursor: str | None = Field(description="The `cursor` of the next page; null on the last page.")


class RegisterBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"job": "job-4k9x2m7qd1ze"}]})

    job: str = Field(min_length=1, max_length=100, description="The id of a COMPLETED job.")


class EditVersionBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"notes": "Best on the night images."}]})

    notes: Annotated[str, Field(max_length=100_000, pattern=r"^[^\x00]*$")] = Field(
        description="What users want to remember about the version. The dashboard shows it as Markdown."
    )


class PromoteBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"version": "3"}]})

    version: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9._-]{1,63}$", description="A number, a stage, or `latest`.", examples=["3"])
    ]
