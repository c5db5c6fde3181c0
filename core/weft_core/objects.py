"""Objects in S3: the installation's own bucket (:class:`Objects`) and users' stores (:class:`S3Store`).

Both speak through :class:`Bucket`, which turns boto's exceptions into one :class:`StoreError` a user can act on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from tempfile import NamedTemporaryFile, _TemporaryFileWrapper
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError, NoCredentialsError, SSLError
from urllib3.exceptions import NameResolutionError

from weft_core import aws
from weft_core.failpoints import around
from weft_core.launch import S3Location
from weft_core.outgoing import NotAllowed, Outgoing
from weft_core.pinned import pin
from weft_core.settings import S3Settings

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import CopySourceTypeDef

_logger = logging.getLogger(__name__)

SMALL = 1 << 20
"""Bytes up to which a file is uploaded by one request, without other threads."""
_WEEK = 7 * 24 * 3600  # the longest that a signature of version 4 may live


class StoreError(Exception):
    """An S3 store refused a request or did not answer. ``kind`` says which: only ``unreachable`` may pass by itself."""

    def __init__(
        self, message: str, kind: Literal["unreachable", "credentials", "no_container", "not_found", "other"]
    ) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class ObjectInfo:
    key: str
    size: int  # bytes
    modified: datetime


def make_client(
    endpoint: str,
    region: str | None,
    access_key: str,
    secret_key: str,
    session_token: str | None = None,
    ca: str | None = None,
    outgoing: Outgoing | None = None,
) -> S3Client:
    """A client that gives up soon: a request handler or a reconciler step waits for it.

    Args:
        outgoing: the door for its requests; None: an administrator has named the endpoint.
    """
    client: S3Client = aws.make_client(
        "s3",
        endpoint_url=endpoint,
        region_name=region or "us-east-1",
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        aws_session_token=session_token,
        verify=_ca_file(ca).name if ca else None,
        config=Config(
            signature_version="s3v4",
            connect_timeout=3,
            read_timeout=10,
            retries={"total_max_attempts": 3, "mode": "standard"},
            # Path style: most S3 stores besides AWS have no DNS name a bucket.
            s3={"addressing_style": "path"},
            # Checksums only where S3 asks for them: other stores refuse the newer trailers.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            max_pool_connections=32,
            proxies={} if outgoing else None,
        ),
    )
    if outgoing:
        pin(client, outgoing)
    return client


@lru_cache(64)
def _ca_file(ca: str) -> _TemporaryFileWrapper[str]:
    """boto reads certificates from a file only; the file goes with this process."""
    file = NamedTemporaryFile("w", prefix="weft-ca-", suffix=".pem")  # noqa: SIM115
    file.write(ca)
    file.flush()
    return file


@contextmanager
def store_errors(endpoint: str, container: str, key: str = "") -> Iterator[None]:
    """Around calls of boto: its exceptions become StoreErrors."""
    place = f"{container}/{key}" if key else container
    try:
        yield
    except NotAllowed as error:
        _logger.warning("the store at %s is not called: %s", endpoint, error.detail)
        raise StoreError(f"can't reach {endpoint}: {error}", "unreachable") from error
    except NoCredentialsError as error:
        raise StoreError(f"no credentials for {endpoint}", "credentials") from error
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code == "NoSuchBucket":
            raise StoreError(f"container {container!r} does not exist at {endpoint}", "no_container") from error
        if code in {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken"}:
            raise StoreError(f"{endpoint} does not accept these credentials ({code})", "credentials") from error
        if status == 403:
            raise StoreError(
                f"these credentials may not use {place!r} at {endpoint} (access denied)", "credentials"
            ) from error
        if status == 404:
            raise StoreError(f"{place!r} does not exist at {endpoint}", "not_found") from error
        if status >= 500 or status == 429:
            raise StoreError(f"{endpoint} answers with an error ({status} {code})", "unreachable") from error
        raise StoreError(f"{endpoint} refused: {code or status}", "other") from error
    except SSLError as error:
        raise StoreError(
            f"the certificate of {endpoint} is not trusted: a private authority's goes into 'ca'", "other"
        ) from error
    except EndpointConnectionError as error:
        why = error.kwargs.get("error")
        if isinstance(why, NameResolutionError):
            host = urlsplit(endpoint).hostname
            raise StoreError(f"can't reach {endpoint}: the name {host!r} can't be resolved", "unreachable") from error
        raise StoreError(f"can't reach {endpoint}: no connection", "unreachable") from error
    except BotoCoreError as error:
        raise StoreError(f"can't reach {endpoint}: {type(error).__name__}", "unreachable") from error
    except ValueError as error:  # an endpoint that is no URL
        raise StoreError(f"{endpoint!r} is not the URL of an S3 endpoint", "other") from error


def _transfers() -> Any:
    """boto3's functions that transfer large objects. Loaded by the first of them: many processes never have one."""
    from boto3.s3 import inject

    return inject


def _copy_settings() -> Any:
    from boto3.s3.transfer import TransferConfig

    return TransferConfig(multipart_threshold=1 << 30, multipart_chunksize=256 << 20)


class Bucket:
    """One container; keys are as given, without a prefix of our own.

    Args:
        space: what stands before the container's name in the store.
    """

    def __init__(
        self,
        client: S3Client,
        endpoint: str,
        container: str,
        public_client: S3Client | None = None,
        space: str = "",
    ) -> None:
        self._s3 = client
        self._signer = public_client or client
        self._endpoint = endpoint
        self._space = space
        self.container = container

    @property
    def bucket(self) -> str:
        """The container by the name that the store knows."""
        return self._space + self.container

    def _guard(self, key: str = "") -> Any:
        return store_errors(self._endpoint, self.container, key)

    def check(self) -> None:
        """Raise StoreError unless the container exists and may be listed."""
        with self._guard():
            # Not HEAD: its 403 and 404 come without the code that tells wrong credentials from a missing container.
            self._s3.list_objects_v2(Bucket=self.bucket, MaxKeys=1)

    def create(self) -> None:
        """Create the container unless it is there."""
        with self._guard():
            try:
                self._s3.create_bucket(Bucket=self.bucket)
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") not in {
                    "BucketAlreadyOwnedByYou",
                    "BucketAlreadyExists",
                }:
                    raise

    @around("s3.put")
    def put(self, key: str, body: bytes) -> None:
        with self._guard(key):
            self._s3.put_object(Bucket=self.bucket, Key=key, Body=body)

    @around("s3.put_file")
    def put_file(self, key: str, path: Path) -> None:
        """Upload a file of any size (multipart above 8 MiB)."""
        if path.stat().st_size <= SMALL:  # without a pool of threads for each transfer
            self.put(key, path.read_bytes())
            return
        with self._guard(key):
            _transfers().upload_file(self._s3, str(path), self.bucket, key)

    def get(self, key: str) -> bytes:
        with self._guard(key):
            return self._s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()

    def get_range(self, key: str, start: int, size: int) -> bytes:
        """``size`` (≥ 1) bytes of an object from ``start`` on; fewer where it ends."""
        with self._guard(key):
            answer = self._s3.get_object(Bucket=self.bucket, Key=key, Range=f"bytes={start}-{start + size - 1}")
            return answer["Body"].read()

    def get_stream(self, key: str, piece: int = 1 << 20) -> Iterator[bytes]:
        """The object in pieces. Opened at once, so that a missing object raises here and not in mid-answer."""
        with self._guard(key):
            body = self._s3.get_object(Bucket=self.bucket, Key=key)["Body"]
        return self._pieces(key, body, piece)

    def _pieces(self, key: str, body: Any, piece: int) -> Iterator[bytes]:
        with self._guard(key):
            yield from body.iter_chunks(piece)

    @around("s3.copy")
    def copy(self, key: str, target: Bucket, target_key: str, *, inside: bool) -> None:
        """Copy an object of any size to ``target``; ``inside`` the store, or through this process."""
        if inside:
            with target._guard(key):
                source: CopySourceTypeDef = {"Bucket": self.bucket, "Key": key}
                _transfers().copy(
                    target._s3, source, target.bucket, target_key, SourceClient=self._s3, Config=_copy_settings()
                )
            return
        with self._guard(key):
            body = self._s3.get_object(Bucket=self.bucket, Key=key)["Body"]
            with target._guard(target_key):
                _transfers().upload_fileobj(target._s3, body, target.bucket, target_key)

    def head(self, key: str) -> ObjectInfo | None:
        """Size and time of an object, or None when there is none."""
        try:
            with self._guard(key):
                answer = self._s3.head_object(Bucket=self.bucket, Key=key)
        except StoreError as error:
            if error.kind == "not_found":
                return None
            raise
        return ObjectInfo(key, answer["ContentLength"], answer["LastModified"])

    def objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """All objects whose key starts with ``prefix``, in key order."""
        with self._guard(prefix):
            for page in self._s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix):
                for entry in page.get("Contents", []):
                    yield ObjectInfo(entry["Key"], entry["Size"], entry["LastModified"])

    def page(
        self, prefix: str, limit: int, cursor: str | None, *, folders: bool = False
    ) -> tuple[list[ObjectInfo], list[str], str | None]:
        """One page of a listing (``limit`` ≤ 1000) and the cursor of the next, None at the end.

        With ``folders``, keys that have another slash after the prefix are left out; the second part of the answer has
        their beginnings up to that slash.
        """
        with self._guard(prefix):
            extra: dict[str, Any] = {"ContinuationToken": cursor} if cursor else {}
            extra |= {"Delimiter": "/"} if folders else {}
            answer = self._s3.list_objects_v2(Bucket=self.bucket, Prefix=prefix, MaxKeys=limit, **extra)
        found = [ObjectInfo(entry["Key"], entry["Size"], entry["LastModified"]) for entry in answer.get("Contents", [])]
        common = [entry["Prefix"] for entry in answer.get("CommonPrefixes", [])]
        return found, common, answer.get("NextContinuationToken")

    @around("s3.delete")
    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; what is missing already is no error."""
        batch: list[str] = []
        for key in [*keys, None]:
            if key is not None:
                batch.append(key)
            if batch and (key is None or len(batch) == 1000):
                with self._guard():
                    self._s3.delete_objects(
                        Bucket=self.bucket, Delete={"Objects": [{"Key": name} for name in batch], "Quiet": True}
                    )
                batch = []

    def presign_get(self, key: str, seconds: int = _WEEK) -> str:
        return self._signer.generate_presigned_url("get_object", {"Bucket": self.bucket, "Key": key}, seconds)

    def presign_put(self, key: str, seconds: int = _WEEK) -> str:
        return self._signer.generate_presigned_url("put_object", {"Bucket": self.bucket, "Key": key}, seconds)

    @around("s3.create_multipart")
    def create_multipart(self, key: str) -> str:
        """Begin a multipart upload; returns its id."""
        with self._guard(key):
            return self._s3.create_multipart_upload(Bucket=self.bucket, Key=key)["UploadId"]

    def presign_part(self, key: str, upload_id: str, number: int, seconds: int = _WEEK) -> str:
        return self._signer.generate_presigned_url(
            "upload_part",
            {"Bucket": self.bucket, "Key": key, "UploadId": upload_id, "PartNumber": number},
            seconds,
        )

    @around("s3.complete_multipart")
    def complete_multipart(self, key: str, upload_id: str, etags: list[str]) -> None:
        """Publish the object from its parts, ``etags`` in the order of their numbers (from 1)."""
        with self._guard(key):
            self._s3.complete_multipart_upload(
                Bucket=self.bucket,
                Key=key,
                UploadId=upload_id,
                MultipartUpload={"Parts": [{"PartNumber": n, "ETag": etag} for n, etag in enumerate(etags, 1)]},
            )

    @around("s3.abort_multipart")
    def abort_multipart(self, key: str, upload_id: str) -> None:
        """Give up a multipart upload; one that is gone already is no error."""
        try:
            with self._guard(key):
                self._s3.abort_multipart_upload(Bucket=self.bucket, Key=key, UploadId=upload_id)
        except StoreError as error:
            if error.kind != "not_found":
                raise


class Objects(Bucket):
    """The installation's own bucket. URLs that it signs are for ``public_endpoint``."""

    def __init__(self, settings: S3Settings) -> None:
        def client(endpoint: str) -> S3Client:
            return make_client(endpoint, settings.region, settings.access_key, settings.secret_key.get_secret_value())

        public = settings.public_endpoint
        super().__init__(
            client(settings.endpoint), settings.endpoint, settings.bucket, client(public) if public else None
        )

    def ensure(self) -> None:
        """Make the bucket unless it is there. Raises StoreError."""
        try:
            self.check()
        except StoreError as error:
            if error.kind != "no_container":
                raise
            self.create()


class S3Store(Bucket):
    """A container of a user's store, which is reached through ``outgoing``."""

    def __init__(self, location: S3Location, outgoing: Outgoing) -> None:
        client = make_client(
            location.endpoint,
            location.region,
            location.access_key,
            location.secret_key,
            location.session_token,
            location.ca,
            None if outgoing.owns(location.endpoint) else outgoing,
        )
        super().__init__(client, location.endpoint, location.container, space=location.space)

    def containers(self) -> list[str]:
        """Names of all containers that the credentials may list."""
        with store_errors(self._endpoint, "containers"):
            names = [bucket["Name"] for bucket in self._s3.list_buckets().get("Buckets", []) if "Name" in bucket]
        return [name.removeprefix(self._space) for name in names if name.startswith(self._space)]


# --- keys in the installation's own bucket -----------------------------------------------------------------------


def code_key(project_id: str, sha256: str) -> str:
    return f"code/{project_id}/{sha256}.zip"


def overlay_key(project_id: str, sha256: str) -> str:
    return f"packages/{project_id}/{sha256}.zip"


def job_prefix(project_id: str, job_id: str) -> str:
    return f"jobs/{project_id}/{job_id}/"


def exit_key(project_id: str, job_id: str, attempt: int, rank: int) -> str:
    return f"{job_prefix(project_id, job_id)}attempts/{attempt}/learner-{rank}/exit.json"


def results_prefix(project_id: str, job_id: str) -> str:
    """The prefix for the results of a job that names no store of its own."""
    return f"{job_prefix(project_id, job_id)}results/"


def mlflow_prefix(project_id: str, run_id: str = "") -> str:
    """The prefix for the artifacts of an MLflow run that belongs to no job, or of all such runs of a project."""
    return f"mlflow/{project_id}/" + (f"{run_id}/" if run_id else "")


def profiles_prefix(project_id: str, job_id: str) -> str:
    return f"{job_prefix(project_id, job_id)}profiles/"


def checkpoints_prefix(project_id: str, job_id: str) -> str:
    return f"{job_prefix(project_id, job_id)}checkpoints/"
