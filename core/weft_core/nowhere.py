"""Addresses that a wider rule never opens to learners. Uses only the standard library, because relays run without
site-packages."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address, ip_network

NOWHERE = {
    4: ["100.100.100.200/32", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16"],
    6: ["::1/128", "fd00:ec2::254/128", "fd20:ce::254/128", "fe80::/10"],
}
"""Loopback, link-local addresses, and the clouds' metadata services at other ones, by the version of IP."""
_NETWORKS = [ip_network(each) for networks in NOWHERE.values() for each in networks]


def is_nowhere(address: str) -> bool:
    """Whether a numeric address is one of :data:`NOWHERE`, or an IPv6 address that stands for such an IPv4 address."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address) and found.ipv4_mapped:
        return True
    return any(found in network for network in _NETWORKS)
