"""OpenID Connect: signing in at an identity provider, by the authorization code flow with PKCE.

The browser carries what a sign-in needs at its end (state, nonce, PKCE's verifier) in a sealed cookie, so any process
of the API can finish what another began. Requests to the provider go through :class:`weft_core.outgoing.Outgoing`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from weft_api.context import Context, Shared
from weft_api.http.problems import PROVIDER_UNAVAILABLE, TOO_MANY_SIGN_INS, UNAUTHENTICATED, Problem
from weft_core.oidc_settings import OidcSettings
from weft_core.outgoing import NoAnswer, NotAllowed, Outgoing
from weft_core.secrets import SecretBox, SecretsUnreadable

if TYPE_CHECKING:  # the two take 4 MiB, and only sign-ins at a provider need them
    from authlib.oauth2.auth import ClientAuth
    from authlib.oauth2.client import OAuth2Client
    from joserfc.jwk import KeySet

LIFETIME: Final = 900
"""Seconds in which a sign-in at the provider must end."""
_ALGORITHMS: Final = [f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)] + ["Ed25519", "EdDSA"]
"""Signatures by a private key of the provider's. HS256 would make the client's secret a key."""
_SECONDS: Final = 10.0
_MOST_BYTES: Final = 1 << 20
_FRESH: Final = 600.0
"""Seconds for which the provider's metadata and keys are kept."""
_SLOTS: Final = threading.BoundedSemaphore(8)
"""Requests to providers at the same time, in this process: they hold threads that answer requests."""
_LEEWAY: Final = 60
"""Seconds by which the provider's clock may differ."""

log = structlog.get_logger("weft.oidc")


@dataclass(frozen=True)
class Begun:
    """A sign-in that the browser is to finish at the provider."""

    provider: str
    state: str
    nonce: str
    verifier: str
    until: float

    def seal(self, box: SecretBox) -> str:
        return box.encrypt(json.dumps(asdict(self))).decode()

    @classmethod
    def unseal(cls, box: SecretBox, sealed: str) -> Begun:
        """Raises Problem unauthenticated: it is none, or too old."""
        try:
            begun = cls(**json.loads(box.decrypt(sealed.encode())))
        except (SecretsUnreadable, ValueError, TypeError):
            raise _again() from None
        if begun.until < time.time():
            raise _again()
        return begun


@dataclass(frozen=True)
class Person:
    """A person as the provider knows them. Only issuer and subject say who it is."""

    issuer: str
    subject: str
    name: str
    email: str | None
    groups: frozenset[str]


class Provider:
    """An identity provider.

    Raises, from all methods:
        Problem: provider_unavailable, if it does not answer as it should; too_many_sign_ins.
    """

    def __init__(self, name: str, settings: OidcSettings, redirect_uri: str, outgoing: Outgoing) -> None:
        self.name = name
        self.settings = settings
        self._redirect_uri = redirect_uri
        self._session = _Session(outgoing)
        self._lock = threading.Lock()
        self._metadata: tuple[float, Mapping[str, Any]] | None = None
        self._keys: KeySet | None = None

    def begin(self) -> tuple[str, Begun]:
        """The URL at the provider, and what the end of the sign-in needs."""
        from authlib.common.security import generate_token

        metadata = self._discover()
        begun = Begun(self.name, generate_token(32), generate_token(32), generate_token(64), time.time() + LIFETIME)
        url, _ = self._client(metadata).create_authorization_url(
            metadata["authorization_endpoint"], state=begun.state, code_verifier=begun.verifier, nonce=begun.nonce
        )
        return url, begun

    def finish(self, begun: Begun, code: str, issuer: str | None) -> Person:
        """The person who has signed in.

        Args:
            code: the provider's, from the browser.
            issuer: as the provider named itself beside the code (RFC 9207), if it did.

        Raises:
            Problem: unauthenticated, if the provider does not vouch for the person.
        """
        from authlib.common.errors import AuthlibBaseError
        from joserfc.errors import JoseError

        if issuer is not None and issuer != self.settings.issuer:
            raise self._refused(f"the code is from another issuer: {issuer[:200]!r}")
        metadata = self._discover()
        client = self._client(metadata)
        try:
            token = client.fetch_token(
                metadata["token_endpoint"], code=code, code_verifier=begun.verifier, grant_type="authorization_code"
            )
        except AuthlibBaseError as error:  # used before, expired, or not for this verifier
            raise self._refused(f"{error.error}: {error.description}") from None
        except ValueError as error:
            raise self._unavailable(str(error)) from None
        if not isinstance(token.get("id_token"), str):
            raise self._unavailable("the answer with the tokens has no ID token")
        try:
            claims = self._verify(metadata, token, begun.nonce)
        except (JoseError, ValueError, TypeError) as error:
            raise self._refused(f"ID token: {type(error).__name__}: {error}") from None
        wanted = (self.settings.groups_claim, self.settings.name_claim)
        if not all(claim in claims for claim in wanted) and metadata.get("userinfo_endpoint"):
            claims = {**self._userinfo(metadata, token, claims["sub"]), **claims}
        return self._person(claims)

    def _client(self, metadata: Mapping[str, Any]) -> OAuth2Client:
        from authlib.oauth2.client import OAuth2Client

        secret = self.settings.client_secret.get_secret_value()
        # OpenID Connect's default is client_secret_basic; but servers disagree on how that encodes the secret.
        by_post = "client_secret_post" in (metadata.get("token_endpoint_auth_methods_supported") or ())
        return OAuth2Client(
            self._session,
            client_id=self.settings.client_id,
            client_secret=secret or None,
            token_endpoint_auth_method=("client_secret_post" if by_post else "client_secret_basic") if secret else None,
            scope=" ".join(self.settings.scopes),
            redirect_uri=self._redirect_uri,
            code_challenge_method="S256",
        )

    def _discover(self) -> Mapping[str, Any]:
        with self._lock:
            kept = self._metadata
        if kept is not None and kept[0] > time.monotonic():
            return kept[1]
        found = self._json(self.settings.issuer.rstrip("/") + "/.well-known/openid-configuration")
        if found.get("issuer") != self.settings.issuer:
            raise self._unavailable(f"it names itself {found.get('issuer')!r}, the settings {self.settings.issuer!r}")
        for key in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if not str(found.get(key)).startswith(("https://", "http://")):
                raise self._unavailable(f"its metadata have no {key}")
        with self._lock:
            self._metadata = (time.monotonic() + _FRESH, found)
            self._keys = None
        return found

    def _verify(self, metadata: Mapping[str, Any], token: Mapping[str, Any], nonce: str) -> dict[str, Any]:
        """The claims of the ID token. Raises: JoseError, ValueError, TypeError: it is not to be trusted."""
        from authlib.oidc.core import CodeIDToken
        from joserfc import jwt
        from joserfc.errors import InvalidKeyIdError
        from joserfc.jws import JWSRegistry

        registry = JWSRegistry(algorithms=_ALGORITHMS, strict_check_header=False)
        try:
            decoded = jwt.decode(token["id_token"], self._key_set(metadata), registry=registry)
        except (InvalidKeyIdError, ValueError):  # the provider has changed its keys
            decoded = jwt.decode(token["id_token"], self._key_set(metadata, fresh=True), registry=registry)
        claims = CodeIDToken(
            decoded.claims,
            decoded.header,
            {
                "iss": {"essential": True, "value": self.settings.issuer},
                "aud": {"essential": True, "value": self.settings.client_id},
                "sub": {"essential": True},
            },
            {"nonce": nonce, "client_id": self.settings.client_id, "access_token": token.get("access_token")},
        )
        claims.validate(leeway=_LEEWAY)
        if not isinstance(claims["sub"], str):
            raise ValueError("`sub` is no text")
        return dict(claims)

    def _key_set(self, metadata: Mapping[str, Any], fresh: bool = False) -> KeySet:
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        with self._lock:
            kept = self._keys
        if kept is not None and not fresh:
            return kept
        found = self._json(metadata["jwks_uri"])
        try:
            keys = KeySet.import_key_set(found)  # type: ignore[arg-type]
        except (JoseError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise self._unavailable(f"its keys: {type(error).__name__}: {error}") from None
        with self._lock:
            self._keys = keys
        return keys

    def _userinfo(self, metadata: Mapping[str, Any], token: Mapping[str, Any], subject: str) -> dict[str, Any]:
        """More claims. Raises Problem unauthenticated: they are another person's."""
        found = self._json(metadata["userinfo_endpoint"], {"Authorization": f"Bearer {token.get('access_token')}"})
        if found.get("sub") != subject:
            raise self._refused("the user info is another subject's than the ID token's")
        return found

    def _json(self, url: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        answer = self._session.get(url, {"Accept": "application/json", **(headers or {})})
        found = answer.json() if answer.status_code == 200 else None
        if not isinstance(found, dict):
            raise self._unavailable(f"{url}: status {answer.status_code}, no JSON object")
        return found

    def _person(self, claims: Mapping[str, Any]) -> Person:
        groups = claims.get(self.settings.groups_claim)
        if groups is None:
            log.warning("the provider sent no groups", provider=self.name, claim=self.settings.groups_claim)
        listed = groups if isinstance(groups, list) else [groups]
        email = claims.get("email") if claims.get("email_verified") is True else None
        return Person(
            issuer=self.settings.issuer,
            subject=claims["sub"],
            name=str(claims.get(self.settings.name_claim) or ""),
            email=email if isinstance(email, str) else None,
            groups=frozenset(group for group in listed if isinstance(group, str)),
        )

    def _refused(self, why: str) -> Problem:
        log.warning("a sign-in was refused", provider=self.name, reason=why)
        return Problem(UNAUTHENTICATED, f"{self._title} does not confirm this sign-in; sign in again")

    def _unavailable(self, why: str) -> Problem:
        log.error("an identity provider does not answer as it should", provider=self.name, reason=why)
        return Problem(PROVIDER_UNAVAILABLE, f"{self._title} does not answer as it should; the server's log has more")

    @property
    def _title(self) -> str:
        return self.settings.title or self.name


class _Answer:
    """An answer, as authlib's client reads it."""

    def __init__(self, status: int, content: bytes) -> None:
        self.status_code = status
        self._content = content

    def json(self) -> Any:
        try:
            return json.loads(self._content)
        except (ValueError, RecursionError):
            return None

    def raise_for_status(self) -> None:
        if self.status_code >= 400:
            raise ValueError(f"status {self.status_code}")


class _Session:
    """The HTTP client for authlib's client: bounded requests through the door."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing

    def get(self, url: str, headers: Mapping[str, str]) -> _Answer:
        return self._request(url, headers, None)

    def post(self, url: str, *, data: Mapping[str, str], headers: Mapping[str, str], auth: ClientAuth) -> _Answer:
        """Authlib's call of the token endpoint."""
        from authlib.common.urls import url_encode

        url, sent, body = auth.prepare("POST", url, dict(headers), url_encode(data.items()))
        return self._request(url, sent, body.encode())

    def _request(self, url: str, headers: Mapping[str, str], body: bytes | None) -> _Answer:
        if not _SLOTS.acquire(blocking=False):
            raise Problem(TOO_MANY_SIGN_INS, f"many people sign in now: try again in {TOO_MANY_SIGN_INS.retry_after} s")
        try:
            asking = self._outgoing.get(url, headers) if body is None else self._outgoing.post(url, headers, body)
            with asking as answer:
                return _Answer(answer.status, answer.read_all())
        except (NotAllowed, NoAnswer) as error:
            reason = error.detail if isinstance(error, NotAllowed) else str(error)
            log.error("an identity provider can't be asked", url=url, reason=reason)
            detail = "the identity provider does not answer; try again in a moment"
            raise Problem(PROVIDER_UNAVAILABLE, detail) from None
        finally:
            _SLOTS.release()


def _again() -> Problem:
    return Problem(UNAUTHENTICATED, "this browser has begun no such sign-in, or it took too long; sign in again")


def _providers(context: Context) -> dict[str, Provider]:
    settings = context.settings
    return {
        name: Provider(
            name,
            provider,
            f"{settings.api.public_url.rstrip('/')}/signin/{name}",
            Outgoing(settings.outgoing.allow, own=[provider.issuer], seconds=_SECONDS, most_bytes=_MOST_BYTES),
        )
        for name, provider in settings.oidc.items()
    }


PROVIDERS = Shared(_providers)
"""The identity providers of the settings, by name."""
