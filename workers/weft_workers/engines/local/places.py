"""The places that a gang with a network of its own reaches although they are on this machine; see
:mod:`weft_workers.supervision.network`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from weft_core.launch import LaunchSpec
from weft_core.outgoing import NotAllowed, Outgoing, resolve
from weft_workers.supervision.netlink import Endpoint

_PORTS = {"http": 80, "https": 443}
_PROXY = re.compile(r"(https?|all)_proxy", re.IGNORECASE)


def places(
    spec: LaunchSpec, reachable: Iterable[str], outgoing: Outgoing, environment: Mapping[str, str]
) -> list[Endpoint]:
    """
    Args:
        reachable: HOST:PORT, of the administrator's settings.
        outgoing: knows which hosts of a manifest's URLs may be called.
        environment: the learners', with their proxies.
    """
    proxies = [value for name, value in environment.items() if _PROXY.fullmatch(name)]
    named = [spec.api_url, *spec.own_endpoints, *proxies, *reachable]
    found = [Endpoint(address, port) for host, port in map(_host, named) if host for address in _addresses(host, port)]
    for url in spec.endpoints:
        host, port = _host(url)
        try:
            found += [Endpoint(address, port) for address in outgoing.check(url)] if host else []
        except NotAllowed:  # the service does not call it either
            continue
    return [place for place in dict.fromkeys(found) if "%" not in place.address]


def _host(url: str) -> tuple[str, int]:
    """The host and the port of a URL, or of HOST:PORT; no host: there can be no connection."""
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        return parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 443)
    except ValueError:
        return "", 0


def _addresses(host: str, port: int) -> list[str]:
    try:
        return resolve(host, port)
    except (OSError, UnicodeError):
        return []
