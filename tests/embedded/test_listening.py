"""``weft up --host``: API and S3 where other machines reach them, and nothing else."""

from __future__ import annotations

import ipaddress
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import httpx
import psutil
import pytest
from botocore.exceptions import ClientError
from tests.embedded.helpers import Weft, wait_for

from weft_embedded import ports
from weft_embedded.__main__ import main
from weft_embedded.listening import resolve

_INTERNAL = {"postgres", "redis", "s3"}


def addresses() -> list[str]:
    found = [
        entry.address for card in psutil.net_if_addrs().values() for entry in card if entry.family == socket.AF_INET
    ]
    return sorted(text for text in found if not ipaddress.ip_address(text).is_loopback)


@pytest.fixture(scope="module")
def address() -> str:
    """An address of this machine that others may reach."""
    if not addresses():
        pytest.skip("NOT RUN: this machine has no address but loopback")
    return addresses()[-1]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="weft-up-", dir="/tmp") as name:
        yield Path(name) / "home"


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("http://10.0.0.5", "expected an address or a name of this machine, without port or scheme, such as "),
        ("10.0.0.5:8080", "expected an address or a name of this machine, without port or scheme, such as "),
        ("", "expected an address or a name of this machine"),
        ("203.0.113.7", "203.0.113.7 is no address of this machine, which has "),
        ("2001:db8::7", "2001:db8::7 is no address of this machine, which has "),
        ("224.0.0.1", "224.0.0.1, a multicast address"),
        ("nowhere.invalid", "can't listen at nowhere.invalid: "),
        ("0.0.0.0", "0.0.0.0 listens everywhere, which does not say where to find it: give the address "),
        ("::", ":: listens everywhere, which does not say where to find it: give the address "),
    ],
)
def test_hosts_that_make_no_sense(folder: Path, capsys: pytest.CaptureFixture[str], host: str, message: str) -> None:
    assert main(["up", "--home", str(folder), "--host", host]) == 1
    said = capsys.readouterr().err
    assert message in said
    assert not (folder / "host").exists()


def test_everywhere_is_found_by_the_public_url() -> None:
    everywhere = resolve("0.0.0.0", "https://weft.example.org/")
    assert (everywhere.host, everywhere.name, everywhere.local) == ("0.0.0.0", "weft.example.org", "127.0.0.1")
    assert everywhere.is_open
    assert not resolve("localhost", None).is_open
    assert not resolve("127.0.0.1", None).is_open


def profile(weft: Weft) -> dict[str, str]:
    found: dict[str, str] = tomllib.loads(weft.profile.read_text())["profiles"]["default"]
    return found


def get(weft: Weft, path: str) -> Any:
    headers = {"Authorization": f"Bearer {profile(weft)['token']}"}
    answer = httpx.get(profile(weft)["url"] + path, headers=headers, timeout=300)
    assert answer.status_code == 200, answer.text
    return answer.json()


def datastore(weft: Weft) -> str:
    (store,) = get(weft, "/api/v1/datastores")["datastores"]
    endpoint: str = store["endpoint"]
    return endpoint


def s3(weft: Weft, endpoint: str, secret: str | None = None) -> Any:
    kept = json.loads((weft.home / "s3" / "identities.json").read_text())
    pair = next(identity for identity in kept["identities"] if identity["name"] == "default")["credentials"][0]
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=pair["accessKey"],
        aws_secret_access_key=secret or pair["secretKey"],
    )


def test_open_to_others_and_closed_again(folder: Path, address: str) -> None:
    weft = Weft(folder)
    try:
        weft.up("--host", address, "--no-worker")
        status = weft.status()
        assert status["open"] == f"API and S3 at {address}, without TLS"
        assert status["open"] in " ".join(weft.run("status").stdout.split())
        assert httpx.URL(status["url"]).host == address
        assert profile(weft)["url"] == status["url"]

        # API and gate are all that is open; S3's gRPC and its internal servers are not.
        listening = weft.listening()
        assert {where for name, where, _ in listening if name in _INTERNAL} == {"127.0.0.1"}
        assert {(name, where) for name, where, _ in listening if name not in _INTERNAL} == {
            ("api", address),
            ("gate", address),
        }

        endpoint = datastore(weft)
        assert httpx.URL(endpoint).host == address
        store, body = s3(weft, endpoint), os.urandom(5 << 20)
        store.create_bucket(Bucket="digits")
        store.put_object(Bucket="digits", Key="a", Body=body)
        assert store.get_object(Bucket="digits", Key="a")["Body"].read() == body
        signed = store.generate_presigned_url("get_object", Params={"Bucket": "digits", "Key": "a"})
        assert httpx.get(signed, timeout=300).content == body
        with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
            s3(weft, endpoint, "wrong").list_objects_v2(Bucket="digits")
        assert httpx.get(f"{endpoint}/digits/a", timeout=300).status_code == 403

        gate = weft.parts()["gate"]["pid"]
        os.kill(gate, signal.SIGKILL)
        wait_for(lambda: weft.parts()["gate"]["pid"] not in (gate, None), "the gate is started again")
        wait_for(lambda: weft.parts()["gate"]["state"] == "running", "the gate runs again")
        assert store.get_object(Bucket="digits", Key="a")["Body"].read() == body

        # The next `up` takes the same addresses, because learners come back to them, unless `--host` names another one.
        weft.run("down")
        printed = weft.run("env").stdout
        assert f"WEFT_API__HOST={address}\n" in printed
        assert f"WEFT_API__PUBLIC_URL={status['url']}\n" in printed
        assert f"WEFT_S3__PUBLIC_ENDPOINT={endpoint}\n" in printed
        weft.up("--host", "127.0.0.1", "--no-worker")
        assert weft.status()["open"] == ""
        assert {where for _, where, _ in weft.listening()} == {"127.0.0.1"}
        assert httpx.URL(datastore(weft)).host == "127.0.0.1"
        assert s3(weft, datastore(weft)).get_object(Bucket="digits", Key="a")["Body"].read() == body
    finally:
        weft.run("down", "--grace", "0")
    assert weft.processes() == {}


def test_an_address_that_is_gone_is_named_with_what_to_do(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.mkdir()
    (folder / "version").write_text("1\n")
    (folder / "host").write_text("203.0.113.7\n")
    assert main(["up", "--home", str(folder)]) == 1
    said = capsys.readouterr().err
    assert "203.0.113.7 is no address of this machine" in said
    assert "It is the address of last time: `weft up --host ADDRESS` gives another" in said


@pytest.fixture
def forwarded() -> Iterator[tuple[int, socket.socket]]:
    """The port of a forwarder, and the server behind it."""
    port = ports.pick()
    with socket.create_server(("127.0.0.1", 0)) as behind:
        words = ["-m", "weft_embedded.forward", "127.0.0.1", str(port), str(behind.getsockname()[1])]
        process = subprocess.Popen([sys.executable, *words])
        wait_for(lambda: not ports.is_free(port), "it listens")
        yield port, behind
        process.terminate()
        assert process.wait(300) == 0  # it answers SIGTERM by itself: in a container it is the first process


def test_bytes_pass_both_ways_and_each_way_ends_by_itself(forwarded: tuple[int, socket.socket]) -> None:
    port, behind = forwarded
    sent = os.urandom(5 << 20)

    def echo_after_the_end() -> None:
        server, _ = behind.accept()
        with server, server.makefile("rb") as file:
            server.sendall(file.read()[::-1])

    thread = threading.Thread(target=echo_after_the_end)
    thread.start()
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        with client.makefile("rb") as file:
            assert file.read() == sent[::-1]
    thread.join()


def test_a_server_that_is_away_ends_the_connection(forwarded: tuple[int, socket.socket]) -> None:
    port, behind = forwarded
    behind.close()
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(60)
        assert client.recv(1) == b""
