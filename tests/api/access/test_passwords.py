"""The queue of the sign-ins: many at once stop nobody else."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.api.conftest import PASSWORD, Api, Person, code_of

from weft_api.access import passwords
from weft_core.tokens import verify_password


def test_a_rush_of_sign_ins_holds_up_no_other_call(api: Api, ann: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    lock = threading.Lock()
    checking = most = 0

    def held(password: str, hashed: str) -> bool:
        nonlocal checking, most
        with lock:
            checking += 1
            most = max(most, checking)
        release.wait(300)
        with lock:
            checking -= 1
        return verify_password(password, hashed)

    monkeypatch.setattr(passwords, "verify_password", held)

    def sign_in(number: int) -> tuple[int, str | None, str | None]:
        body = {"user": f"nobody-{number}", "password": "wrong"}
        with api.client() as client:
            answer = client.post("/api/v1/login", json=body, timeout=300)
        return answer.status_code, code_of(answer), answer.headers.get("retry-after")

    with ThreadPoolExecutor(60) as pool:
        try:
            answers = [pool.submit(sign_in, number) for number in range(60)]
            deadline = time.monotonic() + 300
            while (most < 2 or sum(answer.done() for answer in answers) < 50) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert ann.http.get("/api/v1/me", timeout=120).status_code == 200, "while all slots are taken"
        finally:
            release.set()
        counted = Counter(answer.result() for answer in answers)
    assert most == 2
    assert counted == {(429, "too_many_sign_ins", "2"): 50, (401, "unauthenticated", None): 10}
    body = {"user": ann.name, "password": PASSWORD}
    assert api.client().post("/api/v1/login", json=body).status_code == 200, "all places are free again"
