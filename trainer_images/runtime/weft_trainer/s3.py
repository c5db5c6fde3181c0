"""S3 through boto3, which is imported with this module: a learner that needs no user's store does not pay for it."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import boto3
from boto3.exceptions import S3UploadFailedError
from boto3.s3.transfer import TransferConfig
from botocore.config import Config as BotoConfig
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError
from botocore.exceptions import ConnectionError as BotoConnectionError

from weft_trainer.errors import DataError
from weft_trainer.patience import Temporary, patiently
from weft_trainer.spec import S3Location
from weft_trainer.stored import Stored

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_PART = 16 << 20
_CHUNK = 1 << 20
_TRANSFER = TransferConfig(multipart_threshold=4 * _PART, multipart_chunksize=2 * _PART, max_concurrency=4)
_WRONG_KEYS = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthFailure", "InvalidToken", "ExpiredToken")
_AGAIN = ("SlowDown", "RequestTimeout", "RequestTimeTooSkewed", "Throttling", "ThrottlingException")


class S3Store:
    """The objects under a location's prefix, by keys relative to it. Thread-safe. Raises: DataError."""

    def __init__(self, location: S3Location) -> None:
        self.location = location
        self._bucket = location.container
        self._base = location.prefix + "/" if location.prefix else ""
        self._client = _client(location)

    def list(self, prefix: str = "") -> builtins.list[Stored]:
        found: builtins.list[Stored] = []
        with self._explained("listed"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._base + prefix
            )
            for page in pages:
                for one in page.get("Contents", []):
                    key = one["Key"][len(self._base) :]
                    found.append(Stored(key, one["Size"], one["ETag"].strip('"'), one["LastModified"].timestamp()))
        return found

    def head(self, key: str) -> Stored | None:
        with self._explained("looked at", key):
            try:
                head = self._client.head_object(Bucket=self._bucket, Key=self._base + key)
            except ClientError as error:
                if _status(error) == 404:
                    return None
                raise
        return Stored(key, head["ContentLength"], head["ETag"].strip('"'), head["LastModified"].timestamp())

    def read(self, key: str) -> bytes | None:
        with self._explained("read", key):
            try:
                return self._client.get_object(Bucket=self._bucket, Key=self._base + key)["Body"].read()
            except ClientError as error:
                if _code(error) == "NoSuchKey":
                    return None
                raise

    def fetch(self, key: str, path: Path) -> None:
        with path.open("wb") as file, self._explained("downloaded", key):
            body = self._client.get_object(Bucket=self._bucket, Key=self._base + key)["Body"]
            for chunk in body.iter_chunks(_CHUNK):
                file.write(chunk)

    def fetch_parts(self, one: Stored, path: Path, pool: ThreadPoolExecutor, patience: float) -> None:
        """Download in parallel ranges, each of which fails if the object is no longer the listed one."""
        with path.open("wb") as file:
            file.truncate(one.size)

        def fetch(start: int) -> None:
            patiently(lambda: self._fetch_part(one, path, start), patience)

        for _ in pool.map(fetch, range(0, one.size, _PART)):
            pass

    def _fetch_part(self, one: Stored, path: Path, start: int) -> None:
        end = min(start + _PART, one.size)
        with path.open("r+b") as file, self._explained("downloaded", one.key):
            file.seek(start)
            answer = self._client.get_object(
                Bucket=self._bucket, Key=self._base + one.key, Range=f"bytes={start}-{end - 1}", IfMatch=one.etag
            )
            for chunk in answer["Body"].iter_chunks(_CHUNK):
                file.write(chunk)
            if file.tell() != end:
                raise Temporary(f"{one.key}: the answer broke off after {file.tell() - start} of {end - start} bytes")

    def announce(self, keys: Sequence[str]) -> None:
        """Nothing to prepare: requests are signed here."""

    def put_file(self, key: str, path: Path) -> None:
        with self._explained("stored", key):
            self._client.upload_file(str(path), self._bucket, self._base + key, Config=_TRANSFER)

    def put_bytes(self, key: str, data: bytes) -> None:
        with self._explained("stored", key):
            self._client.put_object(Bucket=self._bucket, Key=self._base + key, Body=data)

    def delete(self, keys: Sequence[str]) -> None:
        with self._explained("deleted"):
            for key in keys:  # DeleteObjects wants a checksum header that not every store takes
                self._client.delete_object(Bucket=self._bucket, Key=self._base + key)

    @contextmanager
    def _explained(self, done: str, key: str | None = None) -> Iterator[None]:
        """boto3's errors in the user's words."""
        where = f"{self._bucket}/{self._base}{key or ''}"
        try:
            yield
        except ClientError as error:
            raise self._explain(error, f"{where} can't be {done}") from error
        except S3UploadFailedError as error:
            if isinstance(error.__context__, ClientError):
                raise self._explain(error.__context__, f"{where} can't be {done}") from error
            raise Temporary(f"{where} can't be {done}: {error}") from error
        except (BotoConnectionError, HTTPClientError, IncompleteReadError, ConnectionError, TimeoutError) as error:
            raise Temporary(f"{where} can't be {done}: {self.location.endpoint} does not answer: {error}") from error
        except (BotoCoreError, ValueError) as error:
            raise DataError(f"{where} can't be {done}: {error}") from error

    def _explain(self, error: ClientError, what: str) -> DataError:
        code, status = _code(error), _status(error)
        if code == "NoSuchBucket":
            return DataError(f"{what}: there is no bucket '{self._bucket}' at {self.location.endpoint}")
        if code in _WRONG_KEYS:
            return DataError(f"{what}: {self.location.endpoint} does not take these credentials ({code})")
        if status == 403:
            return DataError(f"{what}: these credentials may not do that ({code})")
        if status == 412:
            return DataError(f"{what}: it was replaced while it was being downloaded")
        words = f"{what}: {code} ({status}) from {self.location.endpoint}"
        return Temporary(words) if status >= 500 or status == 429 or code in _AGAIN else DataError(words)


def _client(location: S3Location) -> S3Client:
    host = urlsplit(location.endpoint).hostname or ""
    style = "auto" if host.endswith("amazonaws.com") else "path"
    config = BotoConfig(
        connect_timeout=5,
        read_timeout=60,
        retries={"mode": "standard", "total_max_attempts": 3},
        max_pool_connections=32,
        s3={"addressing_style": style},  # type: ignore[arg-type]
        # What newer boto3 adds by itself, not every S3 store understands.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    try:
        return boto3.session.Session().client(
            "s3",
            endpoint_url=location.endpoint,
            region_name=location.region or "us-east-1",
            aws_access_key_id=location.access_key,
            aws_secret_access_key=location.secret_key,
            aws_session_token=location.session_token,
            config=config,
        )
    except ValueError as error:
        raise DataError(f"'{location.endpoint}' is no S3 endpoint: {error}") from None


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
