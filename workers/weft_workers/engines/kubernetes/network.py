"""The rules of an attempt's NetworkPolicy: the addresses that its learners may reach.

Policies contain addresses and pods, no names. So a name is looked up when the attempt starts.

The administrator's URLs and entries open what they mean. A name of an in-cluster service (``s3.store.svc``) opens its
namespace, on every port, as policies mostly see the pod behind a service and that pod's port; its cluster IP is opened,
too, for those networks that look before the translation. A name with public addresses opens its port to all public
ones, as those rotate.

A URL from a manifest opens its port at the public addresses that its name has now, and nothing else. The learners use
these addresses as long as they live (``Egress.hosts``), whatever the name's DNS server says later.

A name that can't be looked up opens nothing: the attempt waits.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from weft_core.engine import EngineUnreachable, LaunchRefused
from weft_core.engine_settings import EgressRule
from weft_core.nowhere import NOWHERE
from weft_core.outgoing import is_public

Json = dict[str, Any]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str], Iterable[str]]

_NAMESPACE_LABEL = "kubernetes.io/metadata.name"
_SERVICE = re.compile(r"[a-z0-9-]+\.(?P<namespace>[a-z0-9-]+)\.svc(\.[a-z0-9.-]+)?")
_ALIAS = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")  # as Kubernetes takes them
_PRIVATE = {
    4: [
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's
        "169.254.0.0/16",  # with the clouds' metadata services
        "172.16.0.0/12",
        "192.168.0.0/16",
    ],
    6: ["::1/128", "fc00::/7", "fe80::/10"],
}
_ALL = {4: "0.0.0.0/0", 6: "::/0"}
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Egress:
    """The addresses that an attempt's learners may reach.

    Attributes:
        hosts: names, and the addresses that the learners use for them.
    """

    rules: list[Json]
    hosts: dict[str, list[str]] = field(default_factory=dict)


def resolve(host: str) -> list[str]:
    """The addresses of a host name; none when it can't be resolved here."""
    try:
        return sorted({str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
    except (OSError, UnicodeError):
        return []


def ingress(own: Json) -> list[Json]:
    """Only from the attempt's own learners (``own``: the policy's selector)."""
    return [{"from": [{"podSelector": own}]}]


def egress(
    own: Json,
    own_urls: Sequence[str],
    urls: Iterable[str],
    listed: Iterable[str | EgressRule],
    nodes: Iterable[Json] = (),
    services: Iterable[str] = (),
    lookup: Resolve | None = None,
    dns: Sequence[str] = (),
) -> Egress:
    """To the attempt's own learners, DNS, the hosts of URLs, and the administrator's list.

    Args:
        own_urls: URLs of the administrator's settings.
        urls: URLs of the job's manifest.
        nodes: the cluster's, which no URL of a manifest opens, nor the pods on them.
        services: the networks of the cluster's services, which no URL of a manifest opens either.
        dns: where the cluster's DNS answers, besides its usual pods; none: anywhere.

    Raises:
        EngineUnreachable: the host of a URL can't be found now.
        LaunchRefused: learners may not reach a host of ``urls``.
    """
    lookup = lookup or resolve
    entries = [EgressRule(cidr=entry) if isinstance(entry, str) else entry for entry in listed]
    ours: set[tuple[str | None, int | None]] = {*map(_place, own_urls)}
    ours |= {(entry.host, port) for entry in entries for port in entry.ports}
    ours |= {(entry.host, None) for entry in entries if not entry.ports}
    cluster = [*_networks(nodes), *(ipaddress.ip_network(each, strict=False) for each in services)]
    rules = [{"to": [{"podSelector": own}]}, *_dns(dns)]
    for url in own_urls:
        rules += _to_url(url, lookup)
    opened = [_Listed.of(entry, cluster) for entry in entries if entry.cidr]
    rules += [network.rule() for network in opened]
    for entry in entries:
        if entry.host:
            rules += _to_host(entry.host, entry.ports, lookup)
    hosts: dict[str, list[str]] = {}
    for url in urls:
        host, port = _place(url)
        if host is None or {(host, port), (host, None)} & ours:
            continue
        addresses = _allowed(host, port, url, opened, cluster, lookup)
        rules.append({"to": [_block(address) for address in addresses], "ports": _ports(port, "TCP")})
        if not _addresses([host]) and _ALIAS.fullmatch(host) and host not in {known for known, _ in ours}:
            hosts[host] = [str(address) for address in addresses]
    return Egress([rule for n, rule in enumerate(rules) if rule not in rules[:n]], hosts)


def _allowed(
    host: str, port: int, url: str, opened: Iterable[_Listed], cluster: Sequence[Network], lookup: Resolve
) -> list[Address]:
    """The addresses of a manifest's URL that learners may reach."""
    found = _addresses([host]) or _addresses(lookup(host))
    if not found:
        raise _not_found(url)
    reached = [
        address
        for address in found
        if not _in(address, _never(address))
        and (
            any(network.opens(address, port) for network in opened)
            or (is_public(address) and not _in(address, cluster))
        )
    ]
    if not reached:
        raise LaunchRefused(
            f"learners may not reach {_shown(url)}: its address is not a public one "
            "(for hosts of private networks, the administrator's setting is the engine's 'egress')",
            "S101",
        )
    return reached


def _not_found(url: str) -> EngineUnreachable:
    return EngineUnreachable(f"waiting: the host of {_shown(url)} can't be found; the job starts when it can be")


class _Listed(NamedTuple):
    """A network that the administrator lists."""

    network: Network
    left_out: list[Network]
    """Its parts that listing it does not open: metadata, and the cluster's own networks. To open such a part, an
    administrator lists it, or a part of it."""
    ports: list[int]
    """None: all."""

    @classmethod
    def of(cls, entry: EgressRule, cluster: Iterable[Network]) -> _Listed:
        network = ipaddress.ip_network(entry.cidr or "", strict=False)
        parts = [*map(ipaddress.ip_network, NOWHERE[network.version]), *cluster]
        return cls(network, [part for part in parts if _is_inside(part, network)], entry.ports)

    def opens(self, address: Address, port: int) -> bool:
        return address in self.network and not _in(address, self.left_out) and (not self.ports or port in self.ports)

    def rule(self) -> Json:
        inside = [str(part) for part in self.left_out]
        block = {"cidr": str(self.network), **({"except": inside} if inside else {})}
        return {"to": [{"ipBlock": block}], **_only(self.ports)}


def _to_host(host: str, ports: Sequence[int], lookup: Resolve) -> list[Json]:
    """To a host that the administrator lists."""
    rules = _to_service(host)
    if blocks := [_block(address) for address in _addresses(lookup(host))]:
        rules.append({"to": blocks, **_only(ports)})
    return rules


def _only(ports: Sequence[int]) -> Json:
    return {"ports": [port for number in ports for port in _ports(number, "TCP")]} if ports else {}


def _dns(known: Sequence[str]) -> list[Json]:
    # To anywhere, unless it is known: a cluster's DNS may be pods, a daemon on the node (link-local), or outside.
    # OpenShift's listens on another port behind its service. Most networks see the pods behind a service's address.
    pods = {
        "namespaceSelector": {"matchLabels": {_NAMESPACE_LABEL: "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    places = {"to": [*({"ipBlock": {"cidr": cidr}} for cidr in known), pods]} if known else {}
    return [
        {**places, "ports": _ports(53, "UDP", "TCP")},
        {
            "to": [{"namespaceSelector": {"matchLabels": {_NAMESPACE_LABEL: "openshift-dns"}}}],
            "ports": _ports(5353, "UDP", "TCP"),
        },
    ]


def _to_url(url: str, lookup: Resolve) -> list[Json]:
    """To a URL of the settings. Raises: EngineUnreachable."""
    host, port = _place(url)
    if host is None:
        return []
    rules = _to_service(host)
    addresses = _addresses([host]) or _addresses(lookup(host))
    blocks = [_block(address) for address in addresses if rules or not address.is_global]
    if _addresses([host]):
        blocks = [_block(address) for address in addresses]
    elif not addresses and not rules:
        raise _not_found(url)
    elif not rules:
        versions = sorted({address.version for address in addresses if address.is_global})
        blocks += [{"ipBlock": {"cidr": _ALL[version], "except": _PRIVATE[version]}} for version in versions]
    if blocks:
        rules.append({"to": blocks, "ports": _ports(port, "TCP")})
    return rules


def _to_service(host: str) -> list[Json]:
    service = _SERVICE.fullmatch(host)
    if service is None:
        return []
    return [{"to": [{"namespaceSelector": {"matchLabels": {_NAMESPACE_LABEL: service["namespace"]}}}]}]


def _place(url: str) -> tuple[str | None, int]:
    """The host and the port of a URL; no host where there can't be a connection."""
    try:
        parts = urlsplit(url)
        return (parts.hostname or "").rstrip(".") or None, parts.port or _DEFAULT_PORTS.get(parts.scheme, 443)
    except ValueError:
        return None, 0


def _shown(url: str) -> str:
    """A URL for messages: without credentials."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _networks(nodes: Iterable[Json]) -> list[Network]:
    """The addresses of nodes, and of the pods on them."""
    found: list[Network] = []
    for node in nodes:
        found += [ipaddress.ip_network(each) for each in _addresses(e["address"] for e in node["status"]["addresses"])]
        found += [ipaddress.ip_network(cidr, strict=False) for cidr in node["spec"]["podCIDRs"]]
    return found


def _never(address: Address) -> list[Network]:
    return [ipaddress.ip_network(each) for each in NOWHERE[address.version]]


def _in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)


def _is_inside(inner: Network, outer: Network) -> bool:
    return inner.version == outer.version and inner.network_address in outer and inner.prefixlen > outer.prefixlen


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
