"""A DNS server on UDP, and a resolver that asks it."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_TYPE_A, _CLASS_IN, _ANSWER = 1, 1, 0x8180


class DnsServer:
    """Answers each question about any name with the next of its addresses, and the last one for ever."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.asked = 0
        self._addresses = addresses
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))

    def serve(self) -> None:
        while True:
            question, client = self._socket.recvfrom(512)
            if not question:
                return
            address = self._addresses[min(self.asked, len(self._addresses) - 1)]
            self.asked += 1
            header = question[:2] + struct.pack(">5H", _ANSWER, 1, 1, 0, 0)
            record = struct.pack(">3HIH", 0xC00C, _TYPE_A, _CLASS_IN, 0, 4) + socket.inet_aton(address)
            self._socket.sendto(header + question[12:] + record, client)

    def resolve(self, host: str, port: int) -> list[str]:
        name = b"".join(bytes([len(label)]) + label.encode() for label in host.split(".")) + b"\0"
        question = struct.pack(">6H", 7, 0x0100, 1, 0, 0, 0) + name + struct.pack(">2H", _TYPE_A, _CLASS_IN)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.settimeout(60)
            asking.sendto(question, self._socket.getsockname())
            return [socket.inet_ntoa(asking.recv(512)[-4:])]

    def stop(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.sendto(b"", self._socket.getsockname())


@contextmanager
def dns(*addresses: str) -> Iterator[DnsServer]:
    server = DnsServer(addresses)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()
        server._socket.close()
