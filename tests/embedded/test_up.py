"""``weft up`` with everything, in one home that the tests share: each begins by bringing it up, if it isn't."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path

import boto3
import httpx
import pytest
from botocore.exceptions import ClientError
from mypy_boto3_s3 import S3Client
from tests.embedded.helpers import Weft, wait_for

PARTS = ["postgres", "redis", "s3", "api", "worker"]


@pytest.fixture(scope="module")
def home() -> Iterator[Weft]:
    with tempfile.TemporaryDirectory(prefix="weft-up-", dir="/tmp") as folder:
        weft = Weft(Path(folder) / "home")
        yield weft
        weft.run("down", "--grace", "0")


@pytest.fixture
def weft(home: Weft) -> Weft:
    if not home.runs():
        home.up()
    return home


def client(weft: Weft) -> httpx.Client:
    """As the profile that `weft up` wrote says."""
    profile = tomllib.loads(weft.profile.read_text())["profiles"]["default"]
    return httpx.Client(base_url=profile["url"], headers={"Authorization": f"Bearer {profile['token']}"}, timeout=300)


def store(weft: Weft, identity: str) -> S3Client:
    settings = tomllib.loads((weft.home / "weft.toml").read_text())
    kept = json.loads((weft.home / "s3" / "identities.json").read_text())
    pair = next(candidate for candidate in kept["identities"] if candidate["name"] == identity)["credentials"][0]
    if identity == "weft":
        assert pair["secretKey"] == settings["s3"]["secret_key"]
    ports = json.loads((weft.home / "s3" / "ports.json").read_text())
    return boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{ports['s3']}",
        region_name="us-east-1",
        aws_access_key_id=pair["accessKey"],
        aws_secret_access_key=pair["secretKey"],
    )


def test_everything_runs_and_the_profile_opens_it(weft: Weft) -> None:
    status = json.loads(weft.run("status", "--json").stdout)
    assert status == {"running": True, **weft.status()}
    assert status["ready"]
    assert {part["name"]: part["state"] for part in status["parts"]} == dict.fromkeys(PARTS, "running")
    with client(weft) as api:
        assert str(api.base_url).rstrip("/") == status["url"]
        me = api.get("/api/v1/me")
        assert me.status_code == 200, me.text
        assert "admin" in me.text
        assert api.get("/readyz").json()["status"] == "ready"
        assert [listed["name"] for listed in api.get("/api/v1/datastores").json()["datastores"]] == ["default"]


def test_it_is_private(weft: Weft) -> None:
    assert stat.S_IMODE(weft.home.stat().st_mode) == 0o700
    for secret in (weft.home / "weft.toml", weft.home / "client.toml", weft.profile, weft.home / "s3/identities.json"):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600, secret
    assert {name for name, _, _ in weft.listening()} == {"api", "s3"}
    assert {address for _, address, _ in weft.listening()} == {"127.0.0.1"}


def test_jobs_credentials_open_any_bucket_but_the_installations_own(weft: Weft) -> None:
    store(weft, "weft").put_object(Bucket="weft", Key="code/secret.zip", Body=b"secret")
    jobs = store(weft, "default")
    with pytest.raises(ClientError, match="AccessDenied"):
        jobs.get_object(Bucket="weft", Key="code/secret.zip")
    with pytest.raises(ClientError, match="AccessDenied"):
        jobs.list_objects_v2(Bucket="weft")
    with pytest.raises(ClientError, match="AccessDenied"):
        jobs.put_object(Bucket="weft", Key="code/secret.zip", Body=b"other")
    jobs.create_bucket(Bucket="digits")
    jobs.put_object(Bucket="digits", Key="a/b", Body=b"data")
    with pytest.raises(ClientError, match="AccessDenied"):
        jobs.copy_object(Bucket="digits", Key="stolen", CopySource={"Bucket": "weft", "Key": "code/secret.zip"})
    assert jobs.get_object(Bucket="digits", Key="a/b")["Body"].read() == b"data"


def link_in(text: str) -> str:
    """What stands behind the # of the only sign-in link in what was printed."""
    (secret,) = re.findall(r"sign in once, within 10 minutes: http://127\.0\.0\.1:\d+/signin#(weft_l_[\w-]+)", text)
    return str(secret)


def test_up_prints_a_link_that_signs_in_once(weft: Weft) -> None:
    again = weft.run("up", "--detach")
    assert again.returncode == 0, again.stderr
    link = link_in(again.stdout)
    assert link_in(weft.said) != link
    with httpx.Client(base_url=weft.status()["url"], timeout=300) as browser:
        answers = [browser.post("/api/v1/session", json={"link": link}) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 401]
        assert browser.get("/api/v1/session").json()["user"] == "admin"
        assert browser.get("/api/v1/signin").json() == {
            "profile_file": str(weft.home / "client.toml"),
            "providers": [],
        }
    logs = [path.read_text(errors="replace") for path in (weft.home / "logs").iterdir()]
    assert logs
    assert not [text for text in logs if "weft_l_" in text], "no link is logged"
    command = f"`WEFT_PROFILE_FILE={weft.home / 'client.toml'} weft login --browser`"
    assert command in (weft.home / "logs" / "supervisor.log").read_text()


def test_a_second_up_says_who_runs(weft: Weft) -> None:
    state = weft.status()
    second = weft.run("up")
    assert second.returncode == 1
    assert f"already running on {weft.home}: pid {state['supervisor']['pid']}, {state['url']}" in second.stderr
    assert weft.status()["supervisor"] == state["supervisor"]


@pytest.mark.parametrize("name", PARTS)
def test_a_part_that_is_killed_is_started_again(weft: Weft, name: str) -> None:
    before = weft.parts()[name]
    os.kill(before["pid"], signal.SIGKILL)
    wait_for(lambda: weft.parts()[name]["restarts"] > before["restarts"], f"{name} was seen to die")
    wait_for(lambda: weft.parts()[name]["state"] == "running", f"{name} runs again")
    assert weft.parts()[name]["pid"] != before["pid"]
    assert (
        f"{name} was killed by signal 9 (SIGKILL); starting it again" in (weft.home / "logs/supervisor.log").read_text()
    )
    with client(weft) as api:
        wait_for(lambda: api.get("/readyz").json()["status"] == "ready", "the API is ready")


def test_killed_supervisor_takes_all_along_and_nothing_is_lost(weft: Weft) -> None:
    """The next `up`, in a terminal, finds everything and shows a link; `down` ends it from outside."""
    with client(weft) as api:
        made = api.put("/api/v1/secrets/KEPT", json={"value": "x"})
        assert made.status_code < 300, made.text
    store(weft, "weft").put_object(Bucket="weft", Key="kept", Body=b"kept")
    status, profile = weft.status(), weft.profile.read_text()
    os.kill(status["supervisor"]["pid"], signal.SIGKILL)
    wait_for(lambda: weft.processes() == {}, "all processes ended with their supervisor")
    assert weft.run("status").returncode == 3

    with in_a_terminal(weft, "up", "--port", "0") as (process, shown):
        shown.wait_for(rb"signin#weft_l_[\w-]{43}")
        assert weft.status()["url"] == status["url"]  # learners come back to it
        assert weft.profile.read_text() == profile
        with client(weft) as api:
            assert "KEPT" in api.get("/api/v1/secrets").text
        assert store(weft, "weft").get_object(Bucket="weft", Key="kept")["Body"].read() == b"kept"

        assert set(weft.processes()) >= {part["pid"] for part in weft.parts().values()}
        down = weft.run("down")
    assert down.returncode == 0, down.stderr
    assert [line for line in down.stdout.splitlines() if line.endswith("is stopped")][-6:] == [
        *(f"{name} is stopped" for name in ("worker", "api", "s3", "redis", "postgres")),
        "all is stopped",
    ]
    assert process.returncode == 0
    assert weft.processes() == {}
    assert weft.run("down").stdout == "nothing runs\n"


class Shown:
    """What a program has written to its terminal. A thread reads it: a program whose terminal is full stands still."""

    def __init__(self, master: int) -> None:
        self._bytes = b""
        self.reader = threading.Thread(target=self._read, args=(master,))
        self.reader.start()

    def _read(self, master: int) -> None:
        with contextlib.suppress(OSError):  # this signals its end
            while read := os.read(master, 4096):
                self._bytes += read

    def wait_for(self, pattern: bytes) -> None:
        wait_for(lambda: re.search(pattern, self._bytes) is not None, f"{pattern!r} is shown")


@contextlib.contextmanager
def in_a_terminal(weft: Weft, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], Shown]]:
    """`weft` in a terminal of 80 columns, until it ends."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    command = [sys.executable, "-m", "weft_embedded", *words, "--home", str(weft.home)]
    process = subprocess.Popen(command, env=weft.environment, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    shown = Shown(master)
    try:
        yield process, shown
    except BaseException:
        process.send_signal(signal.SIGINT)
        raise
    finally:
        process.wait()
        shown.reader.join()
        os.close(master)
