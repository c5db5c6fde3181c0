"""The proxies of the environment: ``https_proxy``, ``no_proxy`` and so on."""

from __future__ import annotations

import base64
import os
import urllib.parse


def find_proxy(scheme: str, netloc: str) -> urllib.parse.SplitResult | None:
    """The proxy for a host; None: it is reached directly."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    import urllib.request  # 5 ms that no start without proxies should wait for

    proxies = urllib.request.getproxies_environment()
    if scheme not in proxies or urllib.request.proxy_bypass(netloc):
        return None
    url = proxies[scheme]
    return urllib.parse.urlsplit(url if "//" in url else f"//{url}")


def proxy_headers(proxy: urllib.parse.SplitResult) -> dict[str, str]:
    """The headers that give the proxy its user name and password."""
    if proxy.username is None:
        return {}
    pair = f"{urllib.parse.unquote(proxy.username)}:{urllib.parse.unquote(proxy.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
