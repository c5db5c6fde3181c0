"""Signatures of S3 requests beside botocore's."""

from __future__ import annotations

import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from weft_trainer.stores.sigv4 import EMPTY, Signer, quoted_path, quoted_query


@pytest.mark.parametrize("token", [None, "a/session+token=="])
@pytest.mark.parametrize("key", ["plain", "a b/é+%&?#.txt"])
def test_signatures_are_those_of_botocore(key: str, token: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = "20260102T030405Z"
    monkeypatch.setattr(Signer, "_moment", lambda self: moment)
    signer = Signer("AK", "SK", token, "eu-west-3")
    path, query = quoted_path(f"/bucket/{key}"), quoted_query({"prefix": key, "list-type": "2"})
    ours = signer.headers("GET", "s3.example.org", path, query, EMPTY)
    request = AWSRequest("GET", f"https://s3.example.org{path}?{query}", headers={"x-amz-content-sha256": EMPTY})
    request.context.update(timestamp=moment, payload_signing_enabled=True)
    auth = S3SigV4Auth(Credentials("AK", "SK", token), "s3", "eu-west-3")
    request.headers["X-Amz-Date"] = moment
    if token:
        request.headers["X-Amz-Security-Token"] = token
    text = auth.string_to_sign(request, auth.canonical_request(request))
    assert ours["Authorization"].endswith("Signature=" + auth.signature(text, request))

    presigned = signer.presigned("s3.example.org", path, 3600)
    asked = AWSRequest("GET", f"https://s3.example.org{path}?{presigned.rpartition('&')[0]}")
    asked.context["timestamp"] = moment
    other = S3SigV4QueryAuth(Credentials("AK", "SK", token), "s3", "eu-west-3", 3600)
    text = other.string_to_sign(asked, other.canonical_request(asked))
    assert presigned.endswith("X-Amz-Signature=" + other.signature(text, asked))
