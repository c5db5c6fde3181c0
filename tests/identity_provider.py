"""A real identity provider on this machine, and a browser that signs in there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx

_REPOSITORY = Path(__file__).resolve().parents[1]
_PROGRAM = Path(__file__).with_suffix(".mjs")
SECRET = "a secret of the tests"


@dataclass
class IdentityProvider:
    issuer: str
    _accounts: Path

    def account(self, login: str, **claims: Any) -> None:
        """Create an account, or change its claims. Its login is its subject."""
        self._accounts.write_text(json.dumps(json.loads(self._accounts.read_text()) | {login: claims}))

    def forget(self, login: str) -> None:
        accounts = json.loads(self._accounts.read_text())
        del accounts[login]
        self._accounts.write_text(json.dumps(accounts))

    def sign_in(self, url: str, login: str) -> dict[str, str]:
        """Open ``url`` in a browser, sign in there, consent; returns the parameters with which the provider sends the
        browser back."""
        with httpx.Client(timeout=120) as browser:
            answer = browser.get(url)
            for fields in ({"prompt": "login", "login": login, "password": "any"}, {"prompt": "consent"}):
                answer = self._follow(browser, answer)
                if answer.is_redirect:
                    break
                action = re.search(r'<form[^>]* action="([^"]+)"', answer.text)
                assert action, answer.text
                answer = browser.post(urljoin(str(answer.url), action[1]), data=fields)
            answer = self._follow(browser, answer)
        assert answer.is_redirect, answer.text
        return {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["location"]).query).items()}

    def _follow(self, browser: httpx.Client, answer: httpx.Response) -> httpx.Response:
        """Follow the redirects inside the provider."""
        while answer.is_redirect:
            target = urljoin(str(answer.url), answer.headers["location"])
            if not target.startswith(self.issuer):
                return answer
            answer = browser.get(target)
        return answer


@contextmanager
def identity_provider(
    folder: Path, *redirect_uris: str, claims_in: Literal["id_token", "userinfo"] = "id_token"
) -> Iterator[IdentityProvider]:
    """A provider that runs until the context is left.

    Args:
        folder: for its files.
        redirect_uris: of the client ``weft``.
        claims_in: whether the ID token has the claims, or only the user info.
    """
    accounts = folder / "accounts.json"
    accounts.write_text("{}")
    command = [_node(), str(_PROGRAM), str(_REPOSITORY / "dashboard"), str(accounts), claims_in, *redirect_uris]
    with (folder / "provider.log").open("wb") as log:
        # It ends with its standard input, whatever becomes of the tests.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        try:
            assert process.stdout is not None
            issuer = process.stdout.readline().decode().strip()
            assert issuer, (folder / "provider.log").read_text()
            yield IdentityProvider(issuer, accounts)
        finally:
            process.kill()
            process.communicate()


def _node() -> str:
    """The machine's Node, or the one from PyPI that `make setup` installs where there is none (dashboard/npm)."""
    return next(filter(None, (shutil.which("node", path=str(_REPOSITORY / ".venv/bin")), shutil.which("node"))))
