"""Whom learners may talk to: the rules of an attempt's NetworkPolicy.

Policies know addresses and pods, no names. So a name is looked up when the attempt starts: private addresses become
rules of their own, while a name with public addresses opens its port to all public ones, as those rotate, and one that
can't be looked up here opens it to all: the learners' DNS may know it. A name of an in-cluster service
(``s3.store.svc``) opens its namespace, on every port, as policies mostly see the pod behind a service and that pod's
port; its cluster IP is opened, too, for those networks that look before the translation.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str], Iterable[str]]

_NAMESPACE_LABEL = "kubernetes.io/metadata.name"
_SERVICE = re.compile(r"[a-z0-9-]+\.(?P<namespace>[a-z0-9-]+)\.svc(\.[a-z0-9.-]+)?")
_PRIVATE = {
    4: [
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",  # with the clouds' metadata services
        "172.16.0.0/12",
        "192.168.0.0/16",
    ],
    6: ["::1/128", "fc00::/7", "fe80::/10"],
}
_NOWHERE = {4: ["127.0.0.0/8", "169.254.0.0/16"], 6: ["::1/128", "fe80::/10"]}
_ALL = {4: "0.0.0.0/0", 6: "::/0"}
_DEFAULT_PORTS = {"http": 80, "https": 443}


def resolve(host: str) -> list[str]:
    """The addresses of a host name; none when it can't be resolved here."""
    try:
        return sorted({str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
    except (OSError, UnicodeError):
        return []


def ingress(own: Json) -> list[Json]:
    """Only from the attempt's own learners (``own``: the policy's selector)."""
    return [{"from": [{"podSelector": own}]}]


def egress(own: Json, urls: Iterable[str], cidrs: Iterable[str], lookup: Resolve | None = None) -> list[Json]:
    """To the attempt's own learners, DNS, the hosts of ``urls`` and the networks ``cidrs``."""
    rules = [{"to": [{"podSelector": own}]}, *_dns()]
    for url in urls:
        rules += [rule for rule in _to_url(url, lookup or resolve) if rule not in rules]
    if blocks := [{"ipBlock": {"cidr": str(ipaddress.ip_network(cidr, strict=False))}} for cidr in cidrs]:
        rules.append({"to": blocks})
    return rules


def _dns() -> list[Json]:
    # To anywhere: a cluster's DNS may be pods, a daemon on the node (link-local), or outside. OpenShift's listens
    # on another port behind its service.
    return [
        {"ports": _ports(53, "UDP", "TCP")},
        {
            "to": [{"namespaceSelector": {"matchLabels": {_NAMESPACE_LABEL: "openshift-dns"}}}],
            "ports": _ports(5353, "UDP", "TCP"),
        },
    ]


def _to_url(url: str, lookup: Resolve) -> list[Json]:
    parts = urlsplit(url)
    host = parts.hostname
    if not host:
        return []
    try:
        ports = _ports(parts.port or _DEFAULT_PORTS.get(parts.scheme, 443), "TCP")
    except ValueError:  # no number: nobody can connect there
        return []
    service = _SERVICE.fullmatch(host)
    addresses = _addresses([host]) or _addresses(lookup(host))
    blocks = [_block(address) for address in addresses if service or not address.is_global]
    rules: list[Json] = []
    if service:
        rules.append({"to": [{"namespaceSelector": {"matchLabels": {_NAMESPACE_LABEL: service["namespace"]}}}]})
    elif _addresses([host]):
        blocks = [_block(address) for address in addresses]
    elif not addresses:
        blocks = [{"ipBlock": {"cidr": _ALL[version], "except": _NOWHERE[version]}} for version in (4, 6)]
    else:
        versions = sorted({address.version for address in addresses if address.is_global})
        blocks += [{"ipBlock": {"cidr": _ALL[version], "except": _PRIVATE[version]}} for version in versions]
    if blocks:
        rules.append({"to": blocks, "ports": ports})
    return rules


def _addresses(texts: Iterable[str]) -> list[Address]:
    found = []
    for text in texts:
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            continue
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        found.append(mapped or address)
    return found


def _block(address: Address) -> Json:
    return {"ipBlock": {"cidr": f"{address}/{address.max_prefixlen}"}}


def _ports(number: int, *protocols: str) -> list[Json]:
    return [{"protocol": protocol, "port": number} for protocol in protocols]
