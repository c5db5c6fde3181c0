"""Code bundles by the sha256 of their bytes."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.conftest import Api, Person, code_of, zipped

from weft_core.objects import code_key


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_bundle_is_sent_once(api: Api, ann: Person, bob: Person) -> None:
    bundle = zipped(a__py="1", b__py="2")
    path = f"/api/v1/code/{_sha256(bundle)}"
    assert ann.http.head(path).status_code == 404
    for _ in range(2):
        answer = ann.http.put(path, content=bundle)
        assert answer.status_code == 201, answer.text
        assert answer.json() == {"sha256": _sha256(bundle), "size": len(bundle), "files": 2}
    assert ann.http.head(path).status_code == 200
    assert bob.http.head(path).status_code == 404, "another project's"
    assert api.context.objects.get(code_key(ann.project_id, _sha256(bundle))) == bundle


def test_bytes_and_name_have_to_fit(api: Api, ann: Person) -> None:
    bundle = zipped(a__py="1")
    other = "0" * 64
    answer = ann.http.put(f"/api/v1/code/{other}", content=bundle)
    assert (answer.status_code, code_of(answer)) == (400, "invalid_bundle")
    assert _sha256(bundle) in answer.json()["detail"]
    assert ann.http.head(f"/api/v1/code/{other}").status_code == 404
    assert api.context.objects.head(code_key(ann.project_id, other)) is None
    for name in ("x", "0" * 63, "0" * 65, "G" * 64, ("a" * 64).upper(), "%00"):
        assert ann.http.put(f"/api/v1/code/{name}", content=bundle).status_code == 400


def _bomb() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(20 << 20))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "bundle",
    [b"", b"no zip", zipped(**{"../x": "1"}), zipped(**{"/etc/x": "1"}), zipped(a="1")[:-5], _bomb()],
    ids=["empty", "no zip", "outside", "absolute", "cut off", "bomb"],
)
def test_bad_bundles(ann: Person, bundle: bytes) -> None:
    answer = ann.http.put(f"/api/v1/code/{_sha256(bundle)}", content=bundle)
    assert (answer.status_code, code_of(answer)) == (400, "invalid_bundle")
    assert ann.http.head(f"/api/v1/code/{_sha256(bundle)}").status_code == 404


def test_too_large(api: Api, ann: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.settings.limits, "bundle_bytes", 1 << 20)

    def stream() -> Iterator[bytes]:
        for _ in range(64):
            yield os.urandom(1 << 16)

    for content in (os.urandom(2 << 20), stream()):
        answer = ann.http.put(f"/api/v1/code/{'0' * 64}", content=content)
        assert (answer.status_code, code_of(answer)) == (413, "too_large")


def test_no_upload_is_left_on_the_disk(ann: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # in other servers' there is much going on
    seen: list[str] = []
    make = tempfile.mkstemp

    def seeing(*given: Any, **named: Any) -> tuple[int, str]:
        made = make(*given, **named)
        seen.append(made[1])
        return made

    monkeypatch.setattr(tempfile, "mkstemp", seeing)
    bundle = zipped(a__py="1")
    ann.http.put(f"/api/v1/code/{_sha256(bundle)}", content=bundle)
    ann.http.put(f"/api/v1/code/{'0' * 64}", content=bundle)
    ann.http.post("/api/v1/jobs", data={"manifest": "x"}, files={"code": bundle})
    assert len(seen) == 3
    while list(tmp_path.iterdir()):  # the answer may come a moment before the file is removed
        time.sleep(0.01)
