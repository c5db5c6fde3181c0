"""The addresses that learners may reach."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError
from tests.workers.engines.kubernetes.samples import ENGINE, settings, spec
from tests.workers.engines.kubernetes.test_objects import OWNER

from weft_core.engine import EngineUnreachable, LaunchRefused
from weft_core.engine_settings import EgressRule
from weft_workers.engines.kubernetes import capacity, network, objects

OWN = {"matchLabels": {"weft.dev/run": "weft-job-1-1"}}
HOSTS = {
    "kubernetes.default.svc": ["10.96.0.1"],
    "minio.lan": ["10.5.6.7", "10.5.6.8"],
    "s3.amazonaws.com": ["52.216.1.1", "2600:1fa0::1"],
    "both.example": ["192.168.1.1", "198.51.100.1", "8.8.8.8"],
    "s3.store.svc.cluster.local": ["10.96.7.7"],
    "six.lan": ["fd12::5%eth0"],
    "metadata.example": ["169.254.169.254"],
    "local.example": ["127.0.0.1", "::1"],
    "node.example": ["8.8.4.4"],
    "pod.example": ["2a00:1450::7"],
}


_NODE = {
    "metadata": {"name": "a"},
    "status": {"addresses": [{"type": "Hostname", "address": "a"}, {"type": "ExternalIP", "address": "8.8.4.4"}]},
    "spec": {"podCIDRs": ["2a00:1450::/64"]},
}
NODES = [capacity.trim_node(_NODE), capacity.trim_node({"metadata": {"name": "b"}})]
_CLUSTER = [
    capacity.trim_node(
        {
            "metadata": {"name": "c"},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.1.0.7"}]},
            "spec": {"podCIDRs": ["10.244.0.0/16"]},
        }
    )
]
Listed = list[str | EgressRule]


def lookup(host: str) -> list[str]:
    return HOSTS.get(host, [])


def named(urls: list[str], listed: Listed | None = None, own: Sequence[str] = ()) -> network.Egress:
    """What a job whose manifest names these URLs may reach."""
    return network.egress(OWN, own, urls, listed or [], NODES, lookup=lookup)


def allowed(urls: list[str], address: str, port: int, listed: Listed | None = None) -> bool:
    """Whether the rules for the administrator's URLs let a learner reach an address outside the cluster."""
    return opens(network.egress(OWN, urls, [], listed or [], lookup=lookup).rules, address, port)


def opens(rules: list[dict[str, Any]], address: str, port: int) -> bool:
    ip = ipaddress.ip_address(address)
    for rule in rules:
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


def test_dns_is_reached_where_the_settings_say() -> None:
    rules = network.egress(OWN, [], [], [], dns=["10.96.0.10/32", "169.254.20.10/32"], lookup=lookup).rules
    assert opens(rules, "10.96.0.10", 53)
    assert opens(rules, "169.254.20.10", 53)
    assert not opens(rules, "10.0.0.10", 53)
    assert not opens(rules, "2001:db8::1", 53)
    pods = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    assert [rule for rule in rules if pods in rule.get("to", []) and rule["ports"][0]["port"] == 53]


def test_a_service_opens_its_namespace() -> None:
    rules = network.egress(OWN, ["http://s3.store.svc:9000"], [], [], lookup=lambda host: []).rules
    assert {"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "store"}}}]} in rules


def test_learners_of_one_attempt_reach_each_other_and_nobody_comes_in() -> None:
    what = spec()
    policy = objects.policy(ENGINE, what, OWNER, objects.egress(settings(), what))["spec"]
    own = {"matchLabels": {"weft.dev/installation": what.installation, "weft.dev/run": what.run_name}}
    assert policy["podSelector"] == own
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == [{"from": [{"podSelector": own}]}]
    assert {"to": [{"podSelector": own}]} in policy["egress"]
    assert {"to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}], "ports": [{"protocol": "TCP", "port": 8080}]} in policy[
        "egress"
    ]


def test_a_rule_is_there_once() -> None:
    twice = network.egress(OWN, ["http://10.1.2.3:80", "http://10.1.2.3"], [], [])
    assert twice == network.egress(OWN, ["http://10.1.2.3:80"], [], [])


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254",
        "http://metadata.example/latest",
        "http://[fe80::1]:80",
        "http://[::ffff:169.254.169.254]",
        "http://[fd00:ec2::254]",
        "http://100.100.100.200",
        "http://168.63.129.16",
        "http://local.example:6443",
        "https://10.96.0.1",  # the API of the cluster
        "https://kubernetes.default.svc",
        "http://s3.store.svc.cluster.local:9000",
        "http://minio.lan:9000",
        "http://six.lan:9000",
        "http://node.example:10250",
        "http://pod.example:80",
    ],
)
def test_a_manifest_opens_no_network_of_the_installation(url: str) -> None:
    with pytest.raises(LaunchRefused, match=r"learners may not reach https?://\S+: its address is not a public one"):
        named([url])


@pytest.mark.parametrize("url", ["http://169.254.169.254", "http://local.example:80", "http://[fd00:ec2::254]"])
def test_no_list_lets_a_manifest_open_metadata(url: str) -> None:
    with pytest.raises(LaunchRefused):
        named([url], ["0.0.0.0/0", "::/0"])


def test_a_manifest_opens_the_addresses_that_its_host_has_now() -> None:
    found = named(["https://s3.amazonaws.com/bucket", "http://52.1.1.1:9000", "https://both.example"])
    assert opens(found.rules, "52.216.1.1", 443)
    assert opens(found.rules, "2600:1fa0::1", 443)
    assert opens(found.rules, "52.1.1.1", 9000)
    assert opens(found.rules, "8.8.8.8", 443)
    for address, port in [("52.217.9.9", 443), ("52.216.1.1", 80), ("192.168.1.1", 443), ("10.0.0.1", 443)]:
        assert not opens(found.rules, address, port)
    assert found.hosts == {"s3.amazonaws.com": ["52.216.1.1", "2600:1fa0::1"], "both.example": ["8.8.8.8"]}


def test_a_host_that_cannot_be_found_opens_nothing_and_the_job_waits() -> None:
    with pytest.raises(EngineUnreachable, match=r"waiting: the host of https://nobody.knows can't be found"):
        named(["https://key:secret@nobody.knows"])
    with pytest.raises(EngineUnreachable, match=r"waiting: the host of https://nobody.knows can't be found"):
        named([], own=["https://key:secret@nobody.knows"])


def test_listed_private_stores_are_reached() -> None:
    assert opens(named(["http://minio.lan:9000"], ["10.5.0.0/16"]).rules, "10.5.6.7", 9000)
    only = EgressRule(cidr="10.5.0.0/16", ports=[9000])
    rules = named(["http://minio.lan:9000"], [only]).rules
    assert opens(rules, "10.5.6.7", 9000)
    assert not opens(rules, "10.5.6.7", 9001)
    with pytest.raises(LaunchRefused):
        named(["http://minio.lan:9001"], [only])
    host = EgressRule(host="minio.lan", ports=[9000])
    found = named(["http://minio.lan:9000"], [host])
    assert opens(found.rules, "10.5.6.8", 9000)
    assert not opens(found.rules, "10.5.6.8", 22)
    assert found.hosts == {}, "the administrator's host may move"
    with pytest.raises(LaunchRefused):
        named(["http://minio.lan:22"], [host])
    service = named(["http://s3.store.svc.cluster.local:9000"], [EgressRule(host="s3.store.svc.cluster.local")]).rules
    assert {"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "store"}}}]} in service


def test_the_installations_own_store_stays_open_to_manifests_that_name_it() -> None:
    found = named(["http://10.1.2.3:8333"], own=["http://10.1.2.3:8333"])
    assert opens(found.rules, "10.1.2.3", 8333)
    with pytest.raises(LaunchRefused):
        named(["http://10.1.2.3:5432"], own=["http://10.1.2.3:8333"])


def test_a_wide_network_leaves_out_metadata() -> None:
    for address in ("169.254.169.254", "127.0.0.1", "fd00:ec2::254", "100.100.100.200", "168.63.129.16"):
        assert not allowed([], address, 80, ["0.0.0.0/0", "::/0"])
    assert allowed([], "169.254.20.10", 80, ["169.254.20.10/32"]), "the administrator means it"


def test_a_wide_network_leaves_out_the_clusters_own() -> None:
    def rules(*listed: str | EgressRule) -> list[dict[str, Any]]:
        return network.egress(OWN, [], [], listed, _CLUSTER, ["10.96.0.0/12"], lookup).rules

    for address in ("10.1.0.7", "10.244.3.9", "10.96.0.1"):
        assert not opens(rules("10.0.0.0/8"), address, 443), address
        assert not opens(rules("0.0.0.0/0"), address, 443), address
        with pytest.raises(LaunchRefused):
            network.egress(OWN, [], [f"https://{address}"], ["10.0.0.0/8"], _CLUSTER, ["10.96.0.0/12"], lookup)
        assert opens(rules("10.0.0.0/8", f"{address}/32"), address, 443), "the administrator means it"
    assert opens(rules("10.0.0.0/8"), "10.20.0.1", 443)
    assert opens(rules("10.244.0.0/24"), "10.244.0.9", 443)


@pytest.mark.parametrize(
    "entry", [{}, {"cidr": "10.0.0.0/8", "host": "a"}, {"cidr": "ten"}, {"host": "a", "ports": [0]}]
)
def test_an_entry_is_a_network_or_a_host(entry: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        settings(egress=[entry])


def test_names_are_looked_up() -> None:
    assert "127.0.0.1" in network.resolve("localhost")
    assert network.resolve("no-such-host.invalid") == []
    assert network.resolve("x" * 300) == []
