"""The entry to the library: one :class:`Client` per server."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from weft import profile as profiles
from weft.bundle import Bundle, open_bundle
from weft.errors import ApiError, NotFound, WeftError
from weft.models import Engine, parse_time
from weft.resources.account import Me, Secrets, Tokens
from weft.resources.administration import Projects, Users
from weft.resources.data import Data, Datastores
from weft.resources.jobs import Job, Jobs
from weft.resources.registry import Models
from weft.transport.http import Body, Transport, segment
from weft.transport.transfer import Progress, silent

_BLOCK = 1 << 18


@dataclass(frozen=True)
class Validation:
    """What the server makes of a valid manifest: everything resolved, and notes that are no errors."""

    manifest: Mapping[str, Any]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class SignInLink:
    """A URL that is to be opened in a browser, and until when that works. It opens what its user may: keep it."""

    url: str = field(repr=False)
    expires_at: datetime | None


class Client:
    """Talks to one Weft server.

    Args:
        url: the server; default: ``WEFT_URL``, ``DLAAS_URL``, or the profile file's.
        token: an API token; default: ``WEFT_TOKEN``, ``DLAAS_USERNAME`` (a token, or user with ``DLAAS_PASSWORD``), or
            the profile file's for this URL.
        profile: the name of a profile in the file that ``weft login`` writes.
        transport: for tests and special cases, instead of all the former.

    Every method raises :class:`~weft.errors.Unavailable` when the server can't be reached (after retries) and
    :class:`~weft.errors.ApiError` when it refuses. May be used by several threads, and as a context manager.

    Raises:
        ConfigurationError: nobody says where the server is.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        profile: str | None = None,
        transport: Transport | None = None,
    ) -> None:
        self._transport = transport or Transport(profiles.resolve(url, token, profile))
        self.jobs = Jobs(self._transport)
        self.models = Models(self._transport)
        self.datastores = Datastores(self._transport)
        self.data = Data(self._transport)
        self.secrets = Secrets(self._transport)
        self.tokens = Tokens(self._transport)
        self.users = Users(self._transport)
        self.projects = Projects(self._transport)

    @property
    def url(self) -> str:
        """The server's base URL."""
        return self._transport.server.url

    def close(self) -> None:
        """Drop all connections."""
        self.data.close()
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # --- jobs ------------------------------------------------------------------------------------------------------

    def train(
        self,
        manifest: str | Path | Mapping[str, Any],
        code: str | Path | None = None,
        *,
        overrides: Mapping[str, str] | None = None,
        name: str | None = None,
        keepalive: Mapping[str, int] | None = None,
        progress: Progress = silent,
    ) -> Job:
        """Submit a job: pack and send the code (unless the server has it already), then the manifest.

        Args:
            manifest: path of the YAML file, or its content as a mapping.
            code: folder or zip of the training code; None for a command that needs none.
            overrides: values by path, ``{"learners": "2"}``.
            name: the job's name, instead of the manifest's.
            keepalive: see :meth:`weft.resources.jobs.Jobs.submit`.
            progress: gets the numbers of the code's bytes as they are sent.

        Returns:
            The job, QUEUED; ``job.wait()`` waits for its end.

        Raises:
            InvalidManifest: ``problems`` names each fault.
            BundleError, InvalidBundle: the code can't be packed or is refused.

        Warns:
            UserWarning: a socket, pipe or device in the folder was left out.
        """
        text, path = read_manifest(manifest)
        values = dict(overrides or {}) | ({"name": name} if name else {})
        if code is None:
            return self.jobs.submit(text, None, values, keepalive=keepalive)
        with open_bundle(Path(code), leave_out=path) as bundle:
            if bundle and bundle.warning:
                warnings.warn(bundle.warning, stacklevel=2)
            sha256 = bundle.sha256 if bundle else None
            if bundle:
                self.send_code(bundle, progress)
            return self.jobs.submit(text, sha256, values, keepalive=keepalive)

    def send_code(self, bundle: Bundle, progress: Progress = silent) -> bool:
        """Upload a bundle unless the server has it; True when bytes were sent.

        Raises:
            InvalidBundle: the server refuses the zip: broken, too large, or with names that lead outside.
        """
        path = f"/code/{segment(bundle.sha256)}"
        try:
            self._transport.request("HEAD", path)
        except NotFound:
            pass
        else:
            progress(bundle.size)
            return False
        sent = 0

        def chunks() -> Any:
            nonlocal sent
            progress(-sent)
            sent = 0
            with bundle.path.open("rb") as file:
                while block := file.read(_BLOCK):
                    sent += len(block)
                    progress(len(block))
                    yield block

        self._transport.request("PUT", path, body=Body(chunks, bundle.size, "application/zip"))
        return True

    def validate(
        self, manifest: str | Path | Mapping[str, Any], overrides: Mapping[str, str] | None = None
    ) -> Validation:
        """Let the server check a manifest, without submitting.

        Raises:
            InvalidManifest: ``problems`` names each fault.
        """
        text, _ = read_manifest(manifest)
        data = text.encode()
        answer = self._transport.json(
            "POST",
            "/manifests:validate",
            params={"set": [f"{key}={value}" for key, value in (overrides or {}).items()]},
            body=Body(lambda: [data], len(data), "text/yaml"),
        )
        return Validation(answer.get("manifest") or {}, tuple(answer.get("notes") or ()))

    def job(self, reference: str) -> Job:
        """A job by id, beginning of an id, unique name, or ``@last``; see :meth:`Jobs.find`."""
        return self.jobs.find(reference)

    # --- the installation ------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Whether Weft is there; nothing that is a secret is sent. Raises NotWeft, Unavailable."""
        with suppress(ApiError):  # 'not signed in', in Weft's words
            self._transport.json("GET", "/session", signed=False, holds="user")

    def me(self) -> Me:
        """Whose token this is."""
        data = self._transport.json("GET", "/me", holds="user")
        return Me(*(_name(data.get(key)) for key in ("user", "project", "role")))

    def login(self, user: str, password: str, project: str | None = None) -> str:
        """A new token for a user's password. Raises AuthenticationError."""
        body = {"user": user, "password": password} | ({"project": project} if project else {})
        return str(self._transport.json("POST", "/login", json=body, signed=False, holds="token")["token"])

    def sign_in_link(self) -> SignInLink:
        """A link that signs a browser in as this token's user, once and within minutes. Raises PermissionDenied for who
        has no token but a password."""
        answer = self._transport.json("POST", "/session/links", holds="path")
        return SignInLink(self.url + str(answer["path"]), parse_time(answer.get("expires_at")))

    def engines(self) -> list[Engine]:
        """Where jobs can run, and how busy that is."""
        return [Engine.from_json(one) for one in self._transport.json("GET", "/engines", holds="engines")["engines"]]

    def engine(self, name: str) -> Engine:
        """One of them, with its nodes and what waits for it. Raises NotFound."""
        return Engine.from_json(self._transport.json("GET", f"/engines/{segment(name)}"))

    def catalogue(self) -> list[Mapping[str, Any]]:
        """The images that manifests can ask for by framework and version."""
        return list(self._transport.json("GET", "/catalogue").get("images") or [])

    def server_version(self) -> str:
        """The server's version."""
        return str(self._transport.json("GET", "/healthz", base="", signed=False, holds="version")["version"])


def read_manifest(manifest: str | Path | Mapping[str, Any]) -> tuple[str, Path | None]:
    """The manifest's text, and its path when it is a file's.

    Raises:
        WeftError: the file can't be read.
    """
    if isinstance(manifest, Mapping):
        return yaml.safe_dump(dict(manifest), sort_keys=False), None
    path = Path(manifest)
    try:
        return path.read_text(encoding="utf-8-sig"), path
    except FileNotFoundError:
        raise WeftError(f"there is no manifest {path}; `weft init` writes a starter") from None
    except UnicodeDecodeError as error:
        raise WeftError(f"the manifest {path} is no UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise WeftError(f"the manifest {path} can't be read: {error.strerror}") from error


def _name(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value.get("name") or value.get("id")
    return str(value or "")
