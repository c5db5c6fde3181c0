"""Who I am, my tokens, and the project's secrets."""

from __future__ import annotations

from dataclasses import dataclass

from weft.models import Secret, Token
from weft.transport.http import Transport, segment


@dataclass(frozen=True)
class Me:
    """The token's user, project and role there (``owner``, ``editor`` or ``viewer``)."""

    user: str
    project: str
    role: str


class Secrets:
    """Secrets that manifests name; the server never gives a value back."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> list[Secret]:
        """Their names and times."""
        page = self._transport.json("GET", "/secrets")
        return [Secret.from_json(one) for one in page.get("secrets") or []]

    def set(self, name: str, value: str) -> None:
        """Make it, or give it another value; jobs that start from now on see that."""
        self._transport.request("PUT", f"/secrets/{segment(name)}", json={"value": value})

    def remove(self, name: str) -> None:
        """Forget it. Raises NotFound."""
        self._transport.request("DELETE", f"/secrets/{segment(name)}")


class Tokens:
    """API tokens of the user in the project."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> list[Token]:
        """All that are in force; none shows the token itself."""
        page = self._transport.json("GET", "/tokens")
        return [Token.from_json(one) for one in page.get("tokens") or []]

    def create(self, name: str, expires_in_days: int | None = None) -> Token:
        """A new one; its ``token`` is shown this once. Without ``expires_in_days`` it is in force until revoked."""
        body: dict[str, object] = {"name": name}
        if expires_in_days is not None:
            body["expires_in_days"] = expires_in_days
        return Token.from_json(self._transport.json("POST", "/tokens", json=body))

    def revoke(self, token_id: str) -> None:
        """End it at once. Raises NotFound."""
        self._transport.request("DELETE", f"/tokens/{segment(token_id)}")
