"""Data stores on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field, field_validator

from weft_api.http.parameters import NAME_PATTERN
from weft_api.http.secret_text import SecretText

_STORE: dict[str, Any] = {
    "name": "cos",
    "endpoint": "https://s3.eu-central-1.amazonaws.com",
    "region": "eu-central-1",
    "user_name": "AKIAEXAMPLE",
}

DatastoreName = Annotated[
    str, Path(pattern=NAME_PATTERN, description="Up to 63 letters, digits, '.', '_' and '-'.", examples=["cos"])
]
Container = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$", description="The bucket.", examples=["digits"])
]
NamedContainer = Annotated[
    str,
    Query(
        alias="container",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$",
        description="The container of the object.",
        examples=["digits"],
    ),
]
QueryKey = Annotated[
    str,
    Query(
        alias="key",
        min_length=1,
        max_length=900,
        pattern=r"^[^\x00-\x1f\x7f]+$",
        description="The key of the object.",
        examples=["train/labels.csv"],
    ),
]
QueryContainer = Annotated[
    str | None,
    Query(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$",
        description="List the objects in this container.",
        examples=["digits"],
    ),
]
Key = Annotated[
    str,
    Field(min_length=1, max_length=900, pattern=r"^[^\x00-\x1f\x7f]+$", examples=["train-images-idx3-ubyte.gz"]),
]
_PRINTABLE: dict[str, Any] = {"pattern": r"^[\x20-\x7e]+$"}
"""Of secrets, for the OpenAPI document: pydantic does not compare them with patterns."""
# Strings for headers and signatures: no control characters, nothing beyond Latin-1.
_HeaderText = Annotated[str, Field(pattern=r"^[\x20-\x7e]+$", max_length=2000)]


class DatastoreBody(BaseModel):
    """The address and the credentials of a data store. The password is stored encrypted, and no answer contains it."""

    model_config = ConfigDict(
        extra="forbid",
        title="DatastoreSettings",
        json_schema_extra={"examples": [{k: v for k, v in _STORE.items() if k != "name"} | {"password": "EXAMPLEKEY"}]},
    )

    endpoint: _HeaderText = Field(description="URL of the S3 endpoint.")
    region: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,63}$")] | None = None
    user_name: _HeaderText = Field(description="The access key.")
    password: SecretText = Field(
        description="The secret key.", min_length=1, max_length=4096, json_schema_extra=_PRINTABLE
    )
    session_token: SecretText | None = Field(
        default=None,
        min_length=1,
        max_length=16_384,
        description="The session token of temporary credentials.",
        json_schema_extra=_PRINTABLE,
    )
    ca: str | None = Field(
        default=None,
        max_length=65_536,
        pattern=r"-----BEGIN CERTIFICATE-----[\s\S]+-----END CERTIFICATE-----",
        description="Certificates (PEM) of the private authority that signed the endpoint's certificate.",
    )

    @field_validator("endpoint")
    @classmethod
    def _is_url(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            fits = False
        if not fits or "@" in value or set("?# ") & set(value):
            raise ValueError("must be the URL of a store: http:// or https://, without credentials or a query")
        return value.rstrip("/")

    @field_validator("password", "session_token")
    @classmethod
    def _is_plain(cls, value: SecretText | None) -> SecretText | None:
        if value is not None and not (value.get_secret_value().isascii() and value.get_secret_value().isprintable()):
            raise ValueError("must be printable ASCII")
        return value


class NewDatastore(DatastoreBody):
    model_config = ConfigDict(
        extra="forbid", title="NewDatastore", json_schema_extra={"examples": [{**_STORE, "password": "EXAMPLEKEY"}]}
    )

    name: str = Field(pattern=NAME_PATTERN)


class DatastoreView(BaseModel):
    model_config = ConfigDict(
        title="Datastore", json_schema_extra={"examples": [{**_STORE, "created_at": "2026-01-31T08:00:00Z"}]}
    )

    name: str
    endpoint: str
    region: str | None
    user_name: str | None = Field(
        description="The access key; null in the installation's own store, which issues temporary keys for each use."
    )
    created_at: datetime


class DatastoreList(BaseModel):
    datastores: list[DatastoreView]


class StoredObject(BaseModel):
    key: str
    size: int
    modified: datetime


class ObjectPage(BaseModel):
    """A page of a container's objects. If the request names no container, the answer lists the containers instead."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "objects": [{"key": "t10k-images.gz", "size": 1648877, "modified": "2026-01-31T08:00:00Z"}],
                    "folders": ["train/"],
                    "next_cursor": None,
                    "containers": None,
                },
                {"objects": None, "folders": None, "next_cursor": None, "containers": ["digits", "models"]},
            ]
        }
    )

    objects: list[StoredObject] | None = None
    folders: list[str] | None = Field(
        default=None, description="With `folders` in the request: the prefixes of the objects one level below."
    )
    next_cursor: str | None = Field(default=None, description="The `cursor` of the next page; null on the last page.")
    containers: list[str] | None = None


class UploadBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"container": "digits", "key": "train.gz", "size": 9912422, "create_container": True}]
        },
    )

    container: Container
    key: Key
    size: int = Field(ge=0, le=5 << 40)
    create_container: bool = Field(default=False, description="Create the container if it does not exist.")


class UploadPart(BaseModel):
    number: int
    url: str
    size: int


class Upload(BaseModel):
    """The URLs to PUT the parts to. If there is an ``upload_id``, send the ETags of the answers to
    `uploads:complete`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"parts": [{"number": 1, "url": "https://…", "size": 9912422}], "upload_id": None}]
        }
    )

    parts: list[UploadPart]
    upload_id: str | None


class CompleteBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"container": "digits", "key": "train.gz", "upload_id": "2~VXhbTd", "etags": ["9f86d081884c7d65"]}
            ]
        },
    )

    container: Container
    key: Key
    upload_id: str = Field(min_length=1, max_length=2000, pattern=r"^[\x21-\x7e]+$")
    etags: list[Annotated[str, Field(max_length=200, pattern=r"^[\x20-\x7e]+$")]] = Field(
        min_length=1, max_length=10_000, description="The ETags of all parts, in order."
    )


class DownloadBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"container": "digits", "key": "t.gz"}]})

    container: Container
    key: Key


class Download(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"url": "https://…", "size": 9912422}]})

    url: str
    size: int
