"""Whom learners may talk to."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from tests.workers.engines.kubernetes.samples import ENGINE, settings, spec
from tests.workers.engines.kubernetes.test_objects import OWNER

from weft_workers.engines.kubernetes import network, objects

OWN = {"matchLabels": {"weft.dev/run": "weft-job-1-1"}}
HOSTS = {
    "minio.lan": ["10.5.6.7", "10.5.6.8"],
    "s3.amazonaws.com": ["52.216.1.1", "2600:1fa0::1"],
    "both.example": ["192.168.1.1", "198.51.100.1", "8.8.8.8"],
    "s3.store.svc.cluster.local": ["10.96.7.7"],
    "six.lan": ["fd12::5%eth0"],
}


def allowed(urls: list[str], address: str, port: int, cidrs: list[str] | None = None) -> bool:
    """Whether the rules let a learner reach an address outside the cluster."""
    ip = ipaddress.ip_address(address)
    for rule in network.egress(OWN, urls, cidrs or [], lookup=lambda host: HOSTS.get(host, [])):
        if "ports" in rule and port not in [entry["port"] for entry in rule["ports"] if entry["protocol"] == "TCP"]:
            continue
        blocks = [peer["ipBlock"] for peer in rule["to"] if "ipBlock" in peer] if "to" in rule else [{"cidr": "::/0"}]
        blocks += [] if "to" in rule else [{"cidr": "0.0.0.0/0"}]
        if any(_holds(block, ip) for block in blocks):
            return True
    return False


def _holds(block: dict[str, Any], ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    nets = [ipaddress.ip_network(excluded) for excluded in block.get("except", [])]
    return ip in ipaddress.ip_network(block["cidr"]) and not any(ip in net for net in nets)


@pytest.mark.parametrize(
    ("url", "address", "port"),
    [
        ("http://10.1.2.3:8080", "10.1.2.3", 8080),
        ("http://10.1.2.3", "10.1.2.3", 80),
        ("https://10.1.2.3/x?y#z", "10.1.2.3", 443),
        ("http://52.1.1.1:9000", "52.1.1.1", 9000),
        ("http://[fd00::7]:9000", "fd00::7", 9000),
        ("http://[::ffff:10.1.2.3]:9000", "10.1.2.3", 9000),
        ("http://minio.lan:9000", "10.5.6.8", 9000),
        ("http://six.lan:9000", "fd12::5", 9000),
        ("https://s3.amazonaws.com", "52.217.9.9", 443),
        ("https://s3.amazonaws.com", "2600:ffff::1", 443),
        ("https://both.example", "192.168.1.1", 443),
        ("https://both.example", "9.9.9.9", 443),
        ("https://nobody.knows", "9.9.9.9", 443),
        ("https://nobody.knows", "192.168.1.1", 443),
        ("http://s3.store.svc.cluster.local:9000", "10.96.7.7", 9000),
    ],
)
def test_the_hosts_of_the_urls_are_reached(url: str, address: str, port: int) -> None:
    assert allowed([url], address, port)
    assert not allowed([], address, port)


@pytest.mark.parametrize(
    ("url", "address", "port"),
    [
        ("http://10.1.2.3:8080", "10.1.2.3", 8081),
        ("http://10.1.2.3:8080", "10.1.2.4", 8080),
        ("http://52.1.1.1:9000", "52.1.1.2", 9000),
        ("http://minio.lan:9000", "52.1.1.2", 9000),
        ("https://s3.amazonaws.com", "10.0.0.1", 443),
        ("https://s3.amazonaws.com", "169.254.169.254", 443),
        ("https://s3.amazonaws.com", "fd00::1", 443),
        ("https://s3.amazonaws.com", "52.217.9.9", 80),
        ("https://nobody.knows", "169.254.169.254", 443),
        ("https://nobody.knows", "192.168.1.1", 80),
        ("http://s3.store.svc.cluster.local:9000", "10.96.7.8", 9000),
        ("nonsense", "52.1.1.1", 443),
        ("http://host:port", "52.1.1.1", 443),
    ],
)
def test_nobody_else_is_reached(url: str, address: str, port: int) -> None:
    assert not allowed([url], address, port)


def test_dns_and_more_networks_are_reached() -> None:
    assert allowed([], "10.0.0.10", 53)
    assert allowed([], "192.0.2.9", 12345, ["192.0.2.7/24"])
    assert not allowed([], "192.0.3.9", 12345, ["192.0.2.7/24"])
    assert allowed([], "1.2.3.4", 1, ["0.0.0.0/0"])


def test_a_service_opens_its_namespace() -> None:
    rules = network.egress(OWN, ["http://s3.store.svc:9000"], [], lookup=lambda host: [])
    assert {"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "store"}}}]} in rules


def test_learners_of_one_attempt_reach_each_other_and_nobody_comes_in() -> None:
    what = spec()
    policy = objects.policy(ENGINE, settings(), what, OWNER)["spec"]
    own = {"matchLabels": {"weft.dev/installation": what.installation, "weft.dev/run": what.run_name}}
    assert policy["podSelector"] == own
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == [{"from": [{"podSelector": own}]}]
    assert {"to": [{"podSelector": own}]} in policy["egress"]
    assert {"to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}], "ports": [{"protocol": "TCP", "port": 8080}]} in policy[
        "egress"
    ]


def test_a_rule_is_there_once() -> None:
    twice = network.egress(OWN, ["http://10.1.2.3:80", "http://10.1.2.3"], [])
    assert twice == network.egress(OWN, ["http://10.1.2.3:80"], [])


def test_names_are_looked_up() -> None:
    assert "127.0.0.1" in network.resolve("localhost")
    assert network.resolve("no-such-host.invalid") == []
    assert network.resolve("x" * 300) == []
