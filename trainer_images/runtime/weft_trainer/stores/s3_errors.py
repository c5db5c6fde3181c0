"""Refusals of an S3 store, in the user's words."""

from __future__ import annotations

import socket
import ssl
from typing import NamedTuple
from urllib.parse import urlsplit

from weft_trainer.errors import DataError
from weft_trainer.http import Answer, Unreachable
from weft_trainer.spec import S3Location
from weft_trainer.stores.retry import Temporary, Unresolved

EXPIRED = ("InvalidToken", "ExpiredToken")
_WRONG_KEYS = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthFailure", *EXPIRED)
_AGAIN = ("SlowDown", "RequestTimeout", "RequestTimeTooSkewed", "Throttling", "ThrottlingException")
_ELSEWHERE = ("PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraint")


class Refusal(NamedTuple):
    status: int
    code: str = ""
    region: str = ""
    """The region in which the bucket is, as the store says."""


def read_refusal(answer: Answer) -> Refusal:
    from xml.etree import ElementTree  # 4 ms that only refused requests need

    code, region = "", answer.headers.get("x-amz-bucket-region", "")
    try:
        for element in ElementTree.fromstring(answer.body).iter():  # noqa: S314 - expat bounds what entities may grow to
            name = element.tag.rpartition("}")[2]
            if name == "Code" and element.text:
                code = element.text.strip()
            elif name == "Region" and element.text:
                region = region or element.text.strip()
    except ElementTree.ParseError:
        pass  # HEAD has no body, and a gateway's page is no XML
    return Refusal(answer.status, code, region)


def explain(refusal: Refusal, location: S3Location, what: str) -> DataError:
    """The error for a refusal; ``what`` is the beginning of its message: 'bucket/key can't be read'."""
    code, status, endpoint = refusal.code, refusal.status, location.endpoint
    if code == "NoSuchBucket":
        return DataError(f"{what}: there is no bucket '{location.container}' at {endpoint}")
    if code in _WRONG_KEYS:
        return DataError(f"{what}: {endpoint} does not take these credentials ({code})")
    if code in _ELSEWHERE or status in (301, 307):
        there = f"region '{refusal.region}'" if refusal.region else "another region or endpoint"
        return DataError(
            f"{what}: the bucket is in {there}, asked was {endpoint}, region '{location.region or 'us-east-1'}'"
        )
    if status == 403 and code not in _AGAIN:
        return DataError(f"{what}: these credentials may not do that ({code or 'AccessDenied'})")
    if status == 412:
        return DataError(f"{what}: it was replaced while it was being downloaded")
    if status == 404 or code == "NoSuchKey":
        return DataError(f"{what}: it is not there any more")
    words = f"{what}: {code or 'an error'} ({status}) from {endpoint}"
    return Temporary(words) if status >= 500 or status in (408, 429) or code in _AGAIN else DataError(words)


def reachable(error: Unreachable, location: S3Location, what: str) -> DataError:
    """No answer came: later perhaps, unless it is the certificate."""
    if isinstance(error.__cause__, ssl.SSLCertVerificationError):
        return DataError(
            f"{what}: the certificate of {location.endpoint} is not trusted ({error.__cause__.verify_message}): "
            "a private authority's goes into the connection's 'ca'"
        )
    if isinstance(error.__cause__, socket.gaierror):
        host = urlsplit(location.endpoint).hostname
        known = error.__cause__.errno not in (socket.EAI_AGAIN, socket.EAI_FAIL)  # a DNS server has said so
        why = f"the name '{host}' can't be resolved ({error.__cause__.strerror})"
        return Unresolved(f"{what}: {location.endpoint} can't be reached: {why}", 5.0 if known else 20.0)
    return Temporary(f"{what}: {location.endpoint} does not answer: {error}")
