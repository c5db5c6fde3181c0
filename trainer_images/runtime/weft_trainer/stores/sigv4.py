"""Signatures of S3 requests, version 4, in headers and in URLs.

Source: AWS, "Amazon S3 API Reference: Authenticating Requests (AWS Signature Version 4)". boto3 does the same at ten
times the processor time for each request, and small objects cost little else.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from urllib.parse import quote

EMPTY = hashlib.sha256(b"").hexdigest()
UNSIGNED = "UNSIGNED-PAYLOAD"
_ALGORITHM = "AWS4-HMAC-SHA256"


def quoted_path(path: str) -> str:
    """A path as S3 canonicalises it: everything but letters, digits, ``-._~`` and ``/``, once."""
    return quote(path, safe="/-._~")


def quoted_query(query: Mapping[str, str]) -> str:
    return "&".join(f"{quote(name, safe='-._~')}={quote(query[name], safe='-._~')}" for name in sorted(query))


class Signer:
    """Signs requests with one pair of keys, for one region.

    Args:
        skew: seconds that the store's clock is ahead of ours.
    """

    def __init__(
        self, access_key: str, secret_key: str, session_token: str | None, region: str, skew: float = 0.0
    ) -> None:
        self.access_key = access_key
        self.secret_key = secret_key
        self.session_token = session_token
        self.region = region
        self.skew = skew
        self._keys: dict[str, bytes] = {}  # by the day

    def headers(self, method: str, host: str, path: str, query: str, payload: str) -> dict[str, str]:
        """The headers to send along; ``path`` and ``query`` are quoted already, ``payload`` is the body's sha256 or
        UNSIGNED. Other headers may be added: they are not signed."""
        moment = self._moment()
        signed = {"host": host, "x-amz-content-sha256": payload, "x-amz-date": moment}
        if self.session_token:
            signed["x-amz-security-token"] = self.session_token
        names = ";".join(signed)
        signature = self._signature(moment, method, path, query, signed, names, payload)
        scope = self._scope(moment)
        signed["Authorization"] = (
            f"{_ALGORITHM} Credential={self.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
        return signed

    def presigned(self, host: str, path: str, seconds: int) -> str:
        """The query string by which anybody may GET ``path`` for so long (a week at most)."""
        moment = self._moment()
        query = {
            "X-Amz-Algorithm": _ALGORITHM,
            "X-Amz-Credential": f"{self.access_key}/{self._scope(moment)}",
            "X-Amz-Date": moment,
            "X-Amz-Expires": str(seconds),
            "X-Amz-SignedHeaders": "host",
        }
        if self.session_token:
            query["X-Amz-Security-Token"] = self.session_token
        asked = quoted_query(query)
        signature = self._signature(moment, "GET", path, asked, {"host": host}, "host", UNSIGNED)
        return f"{asked}&X-Amz-Signature={signature}"

    def _moment(self) -> str:
        return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() + self.skew))

    def _scope(self, moment: str) -> str:
        return f"{moment[:8]}/{self.region}/s3/aws4_request"

    def _signature(
        self, moment: str, method: str, path: str, query: str, signed: Mapping[str, str], names: str, payload: str
    ) -> str:
        headers = "".join(f"{name}:{value}\n" for name, value in signed.items())
        request = f"{method}\n{path}\n{query}\n{headers}\n{names}\n{payload}"
        digest = hashlib.sha256(request.encode()).hexdigest()
        text = f"{_ALGORITHM}\n{moment}\n{self._scope(moment)}\n{digest}"
        return hmac.digest(self._key(moment[:8]), text.encode(), "sha256").hex()

    def _key(self, day: str) -> bytes:
        key = self._keys.get(day)
        if key is None:
            key = f"AWS4{self.secret_key}".encode()
            for part in (day, self.region, "s3", "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._keys.clear()
            self._keys[day] = key
        return key
