"""The user of the token, the user's tokens, and the project's secrets."""

from __future__ import annotations

from dataclasses import dataclass

from weft.models import Budget, Secret, ServiceAccount, Token
from weft.transport.http import Transport, segment


@dataclass(frozen=True)
class Me:
    """The user and the project of the token, and the user's role there (``owner``, ``editor`` or ``viewer``)."""

    user: str
    project: str
    role: str
    budget: Budget | None = None
    """Of the token's jobs."""


class Secrets:
    """Secrets that manifests name. The server never returns their values."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> list[Secret]:
        """The names and times of all secrets."""
        page = self._transport.json("GET", "/secrets")
        return [Secret.from_json(secret) for secret in page.get("secrets") or []]

    def set(self, name: str, value: str) -> None:
        """Create a secret or change its value; jobs that start from now on get the new value."""
        self._transport.request("PUT", f"/secrets/{segment(name)}", json={"value": value})

    def remove(self, name: str) -> None:
        """Remove a secret.

        Raises:
            NotFound: there is no such secret.
        """
        self._transport.request("DELETE", f"/secrets/{segment(name)}")


class Tokens:
    """API tokens of the user in the project."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> list[Token]:
        """All valid tokens; none contains the token itself."""
        page = self._transport.json("GET", "/tokens")
        return [Token.from_json(token) for token in page.get("tokens") or []]

    def create(
        self,
        name: str,
        expires_in_days: int | None = None,
        role: str | None = None,
        gpu_hours: float | None = None,
    ) -> Token:
        """Create a token; only this answer contains ``token``.

        Args:
            expires_in_days: None: the token is valid until it is revoked.
            role: the most that the token may do: ``viewer``, ``editor`` or ``owner``; None: all that its user may.
            gpu_hours: the budget of the token's jobs; None: that of the token that makes it, if it has one.
        """
        body = _given(name=name, expires_in_days=expires_in_days, role=role, gpu_hours=gpu_hours)
        return Token.from_json(self._transport.json("POST", "/tokens", json=body))

    def revoke(self, token_id: str) -> None:
        """Revoke a token; it stops working at once.

        Raises:
            NotFound: there is no such token.
        """
        self._transport.request("DELETE", f"/tokens/{segment(token_id)}")


class ServiceAccounts:
    """The project's accounts for machines. Owners of the project create and delete them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> list[ServiceAccount]:
        """The service accounts of the project, by name."""
        page = self._transport.json("GET", "/service-accounts")
        return [ServiceAccount.from_json(account) for account in page.get("service_accounts") or []]

    def create(self, name: str, role: str = "editor") -> ServiceAccount:
        """Create a service account.

        Raises:
            Conflict: the name is taken.
        """
        body = {"name": name, "role": role}
        return ServiceAccount.from_json(self._transport.json("POST", "/service-accounts", json=body))

    def delete(self, name: str) -> None:
        """Delete a service account; its tokens stop working at once.

        Raises:
            NotFound: there is no such account.
        """
        self._transport.request("DELETE", f"/service-accounts/{segment(name)}")

    def create_token(
        self,
        account: str,
        name: str,
        expires_in_days: int | None = None,
        role: str | None = None,
        gpu_hours: float | None = None,
    ) -> Token:
        """Create a token of a service account; only this answer contains ``token``.

        Args:
            account: the service account's name.
            name: the token's.
            expires_in_days: None: the token is valid until it is revoked.
            role: no higher than the account's, which is the default.
            gpu_hours: the budget of the token's jobs; None: that of the token that makes it, if it has one.

        Raises:
            NotFound: there is no such account.
        """
        body = _given(name=name, expires_in_days=expires_in_days, role=role, gpu_hours=gpu_hours)
        return Token.from_json(self._transport.json("POST", f"/service-accounts/{segment(account)}/tokens", json=body))


def _given(**values: object) -> dict[str, object]:
    """The values that are not None."""
    return {key: value for key, value in values.items() if value is not None}
