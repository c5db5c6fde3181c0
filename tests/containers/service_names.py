"""Resolves names of Services for the pods of the test cluster, which has neither a DNS add-on nor a kube-proxy.

The kubelets give pods the address of a name server. One listens there that answers with the addresses of a Service's
ready pods, as a headless Service does. So what is installed is reached by the names that the chart gives it.
"""

from __future__ import annotations

import json
import re
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address

from kubernetes import client
from tests.kubernetes.cluster import Cluster

_SERVICE = re.compile(r"([a-z0-9-]+)\.([a-z0-9-]+)\.svc(\.cluster\.local)?")
_A, _IN = 1, 1
_ANSWER, _NO_SUCH_NAME = 0x8580, 0x8583  # with authority, and recursion as far as there is any


@contextmanager
def service_names(kube: Cluster) -> Iterator[None]:
    """Within the block, the names of Services resolve to their pods."""
    answers = _Answers(kube)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            packet, socket = self.request
            socket.sendto(answers.to(packet), self.client_address)

    with socketserver.ThreadingUDPServer((_address(kube), 53), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()


def _address(kube: Cluster) -> str:
    """Where pods ask for names."""
    configured = json.loads(kube.kubectl("get", "--raw", f"/api/v1/nodes/{kube.nodes[0]}/proxy/configz"))
    return str(configured["kubeletconfig"]["clusterDNS"][0])


class _Answers:
    def __init__(self, kube: Cluster) -> None:
        self._core = client.CoreV1Api(kube.api())

    def to(self, packet: bytes) -> bytes:
        """The answer to a query with one question, as all resolvers send it."""
        labels, place = [], 12  # after the header
        while length := packet[place]:
            labels.append(packet[place + 1 : place + 1 + length].decode("ascii").lower())
            place += 1 + length
        kind, question = struct.unpack_from("!H", packet, place + 1)[0], packet[12 : place + 5]
        ready = self._pods(".".join(labels))
        # Each refers to the question's name by a pointer, and is valid for this moment only.
        found = [b"\xc0\x0c" + struct.pack("!HHIH", _A, _IN, 0, 4) + address.packed for address in ready if kind == _A]
        head = packet[:2] + struct.pack("!HHHHH", _ANSWER if ready else _NO_SUCH_NAME, 1, len(found), 0, 0)
        return head + question + b"".join(found)

    def _pods(self, name: str) -> list[IPv4Address]:
        asked = _SERVICE.fullmatch(name)
        if asked is None:
            return []
        try:
            subsets = self._core.read_namespaced_endpoints(asked[1], asked[2], _request_timeout=4).subsets
        except client.ApiException:
            return []
        return [IPv4Address(address.ip) for subset in subsets or () for address in subset.addresses or ()]
