"""Answers of servers, and missing answers, as errors with an explanation.

Weft's own refusals are RFC 9457 problems; every other refusal comes from another server.
"""

from __future__ import annotations

import html
import re
import socket
import ssl
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import httpx

from weft.errors import ApiError, NotWeft, Unavailable, api_error
from weft.profile import Server

_PROBLEM = "application/problem+json"
_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_LONGEST = 80
_HANDSHAKE = 3.0  # seconds


def is_wefts(response: httpx.Response) -> bool:
    """Whether a refusal comes from Weft."""
    kind = response.headers.get("content-type", "")
    path = response.request.url.path
    if "/v1/" in path and "/api/v1/" not in path:  # FfDL's API, in whose form a refusal is plain JSON
        return isinstance(parsed(response), dict)
    if response.request.method == "HEAD":
        return not kind.startswith("text/html")
    return kind.startswith(_PROBLEM) and isinstance(parsed(response), dict)


def parsed(response: httpx.Response) -> Any:
    """The JSON value of the answer; None: the answer is not JSON."""
    try:
        return response.json()
    except ValueError:
        return None


def read_error(response: httpx.Response, server: Server, *, signed: bool = True) -> ApiError:
    """The :class:`ApiError` for an answer of Weft with a 4xx or 5xx status."""
    from weft.models import Problem  # the models take 20 ms, which `weft version` saves

    status = response.status_code
    problem = parsed(response)
    if not isinstance(problem, dict):
        problem = {}
    detail = problem.get("detail") or problem.get("title")
    problems = [Problem.from_json(fault) for fault in problem.get("problems") or () if isinstance(fault, dict)]
    if not isinstance(detail, str):
        detail = f"{server.url} answered {status} {response.reason_phrase} to {response.request.url.path}"
    if status == 401 and not signed:
        pass  # the sign-in itself was refused; the detail explains it
    elif status == 401 and not server.token and not server.user:
        detail = f"not signed in to {server.url}: run `weft login {server.url}`, or set WEFT_TOKEN"
    elif status == 401:
        detail = f"{server.url} does not accept the token ({detail}); run `weft login {server.url}`"
    return api_error(str(problem.get("code") or f"http_{status}"), status, detail, problems)


def not_weft(server: Server, response: httpx.Response) -> NotWeft:
    """The error for an answer of another server, or of a proxy in front of Weft."""
    asked = f"{response.request.method} {response.request.url.path}"
    by = f" (from {server.source})" if server.source else ""
    return NotWeft(
        f"{server.url} does not answer as Weft does: {asked} got {_described(response)}. It is another server, or a "
        f"proxy in front of Weft. Check the URL{by}"
    )


def redirected(url: str, response: httpx.Response) -> NotWeft:
    """The error for a redirect, which is not followed, because the token must not go to another server."""
    target = response.headers.get("location", "elsewhere")
    if (at := target.find(response.request.url.path)) > 0:
        return NotWeft(f"{url} redirects to {target}: use {target[:at]} instead")
    return NotWeft(
        f"{url} redirects to {target}, which Weft never does: it is another server, or a sign-in page in front of Weft"
    )


def not_now(url: str, response: httpx.Response) -> Unavailable:
    """The error for 502, 503 or 504, from Weft or from a proxy that does not reach Weft."""
    problem = parsed(response)
    if isinstance(problem, dict) and {"title", "detail"} <= problem.keys():
        return Unavailable(f"{problem['title']}: {problem['detail']}")
    return Unavailable(
        f"can't reach Weft at {url}: a proxy in front of it, or another server, answers with {_described(response)}"
    )


def unreachable(url: str, error: Exception) -> Unavailable:
    """The error for a failed connection: 'can't reach Weft at URL: why'."""
    text = str(error) or type(error).__name__
    lowered = text.lower()
    if "refused" in lowered:
        why = "no server listens there (connection refused); `weft up` starts one on this machine"
    elif "name or service" in lowered or "getaddrinfo" in lowered or "resolution" in lowered or "nodename" in lowered:
        why = "the host name is unknown"
    elif "certificate" in lowered:
        why = f"its TLS certificate is not trusted ({text}); SSL_CERT_FILE may name the certificates of your authority"
    elif "ssl" in lowered or "wrong version number" in lowered:
        why = f"TLS failed ({text}); try http:// instead of https://"
    elif isinstance(error, httpx.ConnectTimeout):
        why = "no connection within 5 s"
    elif isinstance(error, httpx.TimeoutException):
        why = "no answer in time"
    elif isinstance(error, httpx.RemoteProtocolError):
        why = f"the server there gave no HTTP answer ({text.rstrip('.')}): is it Weft?"
    else:
        why = f"the connection was interrupted ({text})"
    return Unavailable(f"can't reach Weft at {url}: {why}")


def speaks_tls(url: str) -> bool:
    """Whether a server behind an http:// URL expects https://."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        return False
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent
    try:
        plain = socket.create_connection((parts.hostname, parts.port or 80), timeout=_HANDSHAKE)
        with closing(plain), context.wrap_socket(plain, server_hostname=parts.hostname):
            return True
    except (OSError, ValueError):
        return False


def _described(response: httpx.Response) -> str:
    """'404 Not Found and an HTML page, ‘Directory listing’'."""
    status = f"{response.status_code} {response.reason_phrase}".strip()
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not response.content:
        return f"{status} and no content"
    if kind == "text/html":
        title = _TITLE.search(response.text)
        words = " ".join(html.unescape(title[1]).split())[:_LONGEST] if title else ""
        return f"{status} and an HTML page" + (f", {words!r}" if words else "")
    if "json" in kind:
        return f"{status} and other JSON"
    return f"{status} and {kind or 'something without a Content-Type'}"
