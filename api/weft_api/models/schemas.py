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
    sha256: str = Field(description="Of the sorted lines `key<TAB>size`, keys relative to the version's place.")


class VersionView(BaseModel):
    """One job's results under a number; immutable."""

    model_config = _examples(_VERSION, title="ModelVersion")

    model: str
    version: int
    reference: str
    stages: list[str]
    job: str = Field(description="Whose results it is; that job may have been deleted since.")
    user: str
    parent: str | None = Field(description="The version that its job started from, as it was called then.")
    files: FilesSummary | None = Field(description="As they were registered; null: they could not be listed then.")
    place: str | None = Field(description="Where it is in the user's own store; null: the installation's own store.")
    created_at: datetime


class VersionDetail(VersionView):
    """A version with how it came to be."""

    model_config = _examples(
        {**_VERSION, "lineage": _LINEAGE, "children": ["mnist-tuned@1"]}, title="ModelVersionDetail"
    )

    lineage: dict[str, Any] = Field(
        description="job, code_sha256, data (files, bytes and SHA-256 of the listing's keys, ETags and sizes), "
        "pretrained (the same of the pretrained model), parent, image with its digest, the canonical manifest (without "
        "credentials), metrics, run."
    )
    children: list[str] = Field(description="Versions whose jobs started from this one; 100 at most.")


class ModelView(BaseModel):
    model_config = _examples(_MODEL, title="Model")

    name: str
    latest: int | None = Field(description="The highest version's number.")
    versions: int = Field(description="How many there are.")
    stages: dict[str, int] = Field(description="Stage → the number of the version that it is at.")
    created_at: datetime
    updated_at: datetime = Field(description="When a version or a stage last came.")


class PromotionView(BaseModel):
    stage: str
    version: int | None = Field(description="Null: the stage was taken away.")
    user: str
    at: datetime


class ModelDetail(ModelView):
    """A model with the history of its stages."""

    model_config = _examples({**_MODEL, "promotions": [_PROMOTION]}, title="ModelDetail")

    promotions: list[PromotionView] = Field(description="Newest first; 100 at most.")


class ModelPage(BaseModel):
    models: list[ModelView]
    next_cursor: str | None = Field(description="Of the next page; null on the last.")


class VersionPage(BaseModel):
    versions: list[VersionView]
    next_cursor: str | None = Field(description="Of the next page; null on the last.")


class RegisterBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"job": "job-4k9x2m7qd1ze"}]})

    job: str = Field(min_length=1, max_length=100, description="The id of a COMPLETED job.")


class PromoteBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"version": "3"}]})

    version: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9._-]{1,63}$", description="A number, a stage, or `latest`.", examples=["3"])
    ]
