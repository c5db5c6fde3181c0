"""Objects on a real S3 server, and the errors that a user sees."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from weft_core.launch import S3Location
from weft_core.objects import Objects, S3Store, StoreError
from weft_core.outgoing import Outgoing
from weft_core.settings import S3Settings

DOOR = Outgoing(["127.0.0.1"])


@pytest.fixture
def objects(s3: S3Settings) -> Objects:
    return Objects(s3)


def location(s3: S3Settings, **changes: str) -> S3Location:
    values = {
        "endpoint": s3.endpoint,
        "access_key": s3.access_key,
        "secret_key": s3.secret_key.get_secret_value(),
        "container": s3.bucket,
    }
    return S3Location(**(values | changes))


def test_put_list_get_delete(objects: Objects, tmp_path: Path) -> None:
    objects.put("a/1", b"one")
    (tmp_path / "two").write_bytes(b"two")
    objects.put_file("a/2", tmp_path / "two")
    assert [(stored.key, stored.size) for stored in objects.objects("a/")] == [("a/1", 3), ("a/2", 3)]
    assert b"".join(objects.get_stream("a/2")) == objects.get("a/2") == b"two"
    page, _, cursor = objects.page("a/", 1, None)
    rest, _, end = objects.page("a/", 1, cursor)
    assert [stored.key for stored in page + rest] == ["a/1", "a/2"]
    assert end is None
    assert objects.page("", 1000, None, folders=True) == ([], ["a/"], None)
    objects.delete(["a/1", "a/2"])
    objects.delete(["a/1"])  # gone already: no error
    assert list(objects.objects("a/")) == []
    assert objects.head("a/1") is None


def test_presigned_urls_and_multipart(objects: Objects) -> None:
    assert httpx.put(objects.presign_put("p"), content=b"hello").status_code == 200
    assert httpx.get(objects.presign_get("p")).content == b"hello"
    upload = objects.create_multipart("big")
    parts = [b"x" * (5 << 20), b"tail"]
    etags = [
        httpx.put(objects.presign_part("big", upload, n, 600), content=part).headers["etag"]
        for n, part in enumerate(parts, 1)
    ]
    objects.complete_multipart("big", upload, etags)
    found = objects.head("big")
    assert found is not None
    assert found.size == sum(map(len, parts))


def test_a_missing_container_is_named(s3: S3Settings) -> None:
    with pytest.raises(StoreError, match="container 'no-such-one' does not exist") as caught:
        S3Store(location(s3, container="no-such-one"), DOOR).check()
    assert caught.value.kind == "no_container"


@pytest.mark.parametrize("change", [{"access_key": "nobody"}, {"secret_key": "wrong-secret"}])
def test_wrong_credentials_are_said_and_never_quoted(s3: S3Settings, change: dict[str, str]) -> None:
    with pytest.raises(StoreError) as caught:
        S3Store(location(s3, **change), DOOR).check()
    assert caught.value.kind == "credentials"
    assert "wrong-secret" not in str(caught.value)


def test_a_store_that_is_down_is_unreachable(s3: S3Settings) -> None:
    with socket.socket() as taken:  # bound, not listening: refused at once
        taken.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(StoreError, match="can't reach") as caught:
            S3Store(location(s3, endpoint=endpoint), DOOR).check()
    assert caught.value.kind == "unreachable"


def test_a_name_that_is_not_known(s3: S3Settings) -> None:
    with pytest.raises(StoreError, match=r"can't reach http://store\.invalid:9: .*outgoing.allow must have the host"):
        S3Store(location(s3, endpoint="http://store.invalid:9"), DOOR).check()


def test_a_missing_object(objects: Objects) -> None:
    with pytest.raises(StoreError) as caught:
        objects.get("nothing/here")
    assert caught.value.kind == "not_found"


def test_containers_lists_names(s3: S3Settings, objects: Objects) -> None:
    assert s3.bucket in S3Store(location(s3), DOOR).containers()


def test_credentials_do_not_show_in_reprs(s3: S3Settings) -> None:
    secret = s3.secret_key.get_secret_value()
    assert secret not in repr(location(s3))
    assert secret not in repr(s3.model_copy(update={"secret_key": SecretStr(secret)}))
