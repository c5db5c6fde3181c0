"""Calls of users' URLs: the addresses that are called, and the answers that are accepted."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address

import pytest

from weft_core.outgoing import NoAnswer, NotAllowed, Outgoing

GOOD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; x=y\r\nContent-Length: 5\r\n\r\nhello"


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[tuple[int, list[bytes]]]:
    """A server whose connections `answer` answers; its port, and the requests."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connected, _ = listening.accept()
                except OSError:
                    return
                with connected:
                    asked.append(connected.recv(65536))
                    try:
                        answer(connected)
                    except OSError:
                        continue

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1], asked
        listening.shutdown(socket.SHUT_RDWR)


def sends(data: bytes) -> Callable[[socket.socket], None]:
    return lambda connected: connected.sendall(data)


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
        ),
        *("255.255.255.255", "240.0.0.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fec0::1", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "::127.0.0.1"),
    ],
)
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    door = Outgoing([], resolve=lambda host, port: [address])
    with pytest.raises(NotAllowed, match=r"host can't be found, or is one .* does not call") as caught:
        door.check("https://git.example.com/x")
    assert address.partition("%")[0] not in str(caught.value), "the user learns nothing about the network"
    assert str(ip_address(address)) in caught.value.detail


def test_one_bad_address_among_good_ones_is_refused() -> None:
    with pytest.raises(NotAllowed):
        Outgoing([], resolve=lambda host, port: ["93.184.215.14", "127.0.0.1"]).check("https://git.example.com")
    assert Outgoing([], resolve=lambda host, port: ["93.184.215.14", "2606:2800:21f::1"]).check("https://e.com") == [
        "93.184.215.14",
        "2606:2800:21f::1",
    ]


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "127.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0"])
def test_other_spellings_of_this_machine_are_refused(host: str) -> None:
    with pytest.raises(NotAllowed):
        Outgoing([]).check(f"https://{host}/x")


@pytest.mark.parametrize(
    ("allow", "url"),
    [
        (["git.example.com"], "http://git.example.com"),
        (["git.example.com"], "https://GIT.example.com.:8443/x"),
        (["10.0.0.0/8"], "http://git.example.com"),
        (["10.1.2.3"], "https://git.example.com"),
    ],
)
def test_listed_hosts_and_networks_are_called(allow: list[str], url: str) -> None:
    assert Outgoing(allow, resolve=lambda host, port: ["10.1.2.3"]).check(url) == ["10.1.2.3"]


def test_http_needs_a_listed_host() -> None:
    with pytest.raises(NotAllowed, match="expected https://"):
        Outgoing(["other.example.com"], resolve=lambda host, port: ["93.184.215.14"]).check("http://git.example.com")
    with pytest.raises(NotAllowed):
        Outgoing(["example.com"], resolve=lambda host, port: ["10.0.0.1"]).check("https://git.example.com")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_messages_do_not_tell_which_names_exist_inside(scheme: str) -> None:
    def resolve(host: str, port: int) -> list[str]:
        if host == "there.corp":
            return ["10.0.0.5"]
        raise socket.gaierror(-2, "Name or service not known")

    messages = set()
    for host in ("there.corp", "absent.corp"):
        with pytest.raises(NotAllowed) as caught:
            Outgoing(["192.168.0.0/16"], resolve=resolve).check(f"{scheme}://{host}")
        messages.add(str(caught.value))
    assert len(messages) == 1


def test_a_name_without_an_address() -> None:
    def nowhere(host: str, port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(NotAllowed, match="can't be found"):
        Outgoing([], resolve=nowhere).check("https://nowhere.example.com")
    with pytest.raises(NotAllowed, match="can't be found"):
        Outgoing([]).check(f"https://{'a' * 70}.example.com")


def test_the_address_that_was_checked_is_the_one_that_is_called() -> None:
    """A name is resolved once only, so a name server can't give another address the second time."""
    answers = iter([["127.0.0.1"]])
    with server(sends(GOOD)) as (port, asked):
        door = Outgoing(["127.0.0.1"], resolve=lambda host, port: next(answers))
        with door.get(f"http://rebinding.example.com:{port}/a b?c=d", {"X-Key": "v"}) as answer:
            assert (answer.status, answer.content_type, answer.read(5)) == (200, "text/plain", b"hello")
    assert asked[0].startswith(b"GET /a%20b?c=d HTTP/1.1\r\n")
    assert f"Host: rebinding.example.com:{port}\r\n".encode() in asked[0]
    assert b"X-Key: v\r\n" in asked[0]


def test_redirects_are_not_followed() -> None:
    redirect = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    with (
        server(sends(redirect)) as (port, asked),
        Outgoing(["127.0.0.1"]).get(f"http://127.0.0.1:{port}/", {}) as answer,
    ):
        assert answer.status == 302
    assert len(asked) == 1


def test_large_answers_are_not_read() -> None:
    with (
        server(sends(GOOD.replace(b"5", b"500000") + b"x" * 500000)) as (port, _),
        Outgoing(["127.0.0.1"], most_bytes=1000).get(f"http://127.0.0.1:{port}/", {}) as answer,
    ):
        answer.read(600)
        with pytest.raises(NoAnswer, match="too large"):
            answer.read(600)


def drip(connected: socket.socket) -> None:
    connected.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        connected.sendall(b"x")
        time.sleep(0.05)


@pytest.mark.parametrize("answer", [drip, lambda connected: time.sleep(3), sends(b"SSH-2.0\r\n"), sends(GOOD[:-2])])
def test_slow_and_broken_answers_end_in_time(answer: Callable[[socket.socket], None]) -> None:
    with (
        server(answer) as (port, _),
        pytest.raises(NoAnswer),
        Outgoing(["127.0.0.1"], seconds=0.5).get(f"http://127.0.0.1:{port}/", {}) as found,
    ):
        found.read(5)


def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(NoAnswer, match="refused"), Outgoing(["127.0.0.1"]).get(f"http://127.0.0.1:{port}/", {}):
        pass


def test_nothing_is_sent_to_a_server_without_tls() -> None:
    with (
        server(sends(GOOD)) as (port, asked),
        pytest.raises(NoAnswer),
        Outgoing(["127.0.0.1"]).get(f"https://127.0.0.1:{port}/", {"X-Key": "secret"}),
    ):
        pass
    assert b"secret" not in b"".join(asked)
