"""The entry to the library: one :class:`Client` per server."""

from __future__ import annotations

import socket
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from weft import profile as profiles
from weft.bundle import Bundle, open_bundle
from weft.errors import ApiError, WeftError
from weft.models import Budget, Engine, Room, Schedule, SweepInfo, Usage, parse_time
from weft.resources import code as code_on_server
from weft.resources.account import Me, Secrets, ServiceAccounts, Tokens
from weft.resources.administration import Projects, Users
from weft.resources.audit import Audit
from weft.resources.data import Data, Datastores
from weft.resources.jobs import Job, Jobs, Validation
from weft.resources.registry import Models
from weft.resources.schedules import Schedules
from weft.resources.sweeps import Sweeps
from weft.resources.views import Views
from weft.transport.http import Transport, segment
from weft.transport.transfer import Progress, silent


@dataclass(frozen=True)
class WaitingLogin:
    """A sign-in that waits for its user to confirm ``code`` at ``url``. ``interval`` in seconds."""

    url: str
    code: str
    device_code: str = field(repr=False)
    interval: float


@dataclass(frozen=True)
class SignInLink:
    """A URL that signs in a browser, and the time when it expires. It gives all rights of its user: keep it secret."""

    url: str = field(repr=False)
    expires_at: datetime | None


class Client:
    """Talks to one Weft server.

    Args:
        url: URL of the server; default: ``WEFT_URL``, ``DLAAS_URL``, or the URL in the profile file.
        token: an API token; default: ``WEFT_TOKEN``, ``DLAAS_USERNAME`` (a token, or a user with ``DLAAS_PASSWORD``),
            or the token in the profile file for this URL.
        profile: the name of a profile in the file that ``weft login`` writes.
        transport: for tests and special cases, instead of the other arguments.

    Every method raises :class:`~weft.errors.Unavailable` if the server can't be reached (after retries) and
    :class:`~weft.errors.ApiError` if it refuses. Several threads may share a client. It is also a context manager.

    Raises:
        ConfigurationError: no server is known.
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
        self.schedules = Schedules(self._transport)
        self.sweeps = Sweeps(self._transport)
        self.views = Views(self._transport)
        self.datastores = Datastores(self._transport)
        self.data = Data(self._transport)
        self.secrets = Secrets(self._transport)
        self.tokens = Tokens(self._transport)
        self.service_accounts = ServiceAccounts(self._transport)
        self.users = Users(self._transport)
        self.projects = Projects(self._transport)
        self.audit = Audit(self._transport)

    @property
    def url(self) -> str:
        """The server's base URL."""
        return self._transport.server.url

    def close(self) -> None:
        """Close all connections."""
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
            code: folder or zip of the training code; None: the command needs no code.
            overrides: values by path, ``{"learners": "2"}``.
            name: the job's name, instead of the name in the manifest.
            keepalive: see :meth:`weft.resources.jobs.Jobs.submit`.
            progress: called with the numbers of bytes of the code that have been sent.

        Returns:
            The job, which is QUEUED; ``job.wait()`` waits for its end.

        Raises:
            InvalidManifest: ``problems`` lists the faults.
            BundleError, InvalidBundle: the code can't be packed, or the server refuses it.

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

    def sweep(
        self,
        manifest: str | Path | Mapping[str, Any],
        code: str | Path | None = None,
        *,
        overrides: Mapping[str, str] | None = None,
        progress: Progress = silent,
    ) -> SweepInfo:
        """Submit a sweep: pack and send the code (unless the server has it already), then the manifest.

        Args:
            manifest: path of the YAML file, or its content as a mapping, with the key ``sweep``.
            code: folder or zip of the training code; None: the command needs no code.
            overrides: values by path, ``{"sweep.trials": "10"}``.
            progress: called with the numbers of bytes of the code that have been sent.

        Returns:
            The sweep; ``client.sweeps.wait(sweep.id)`` waits for its end.

        Raises:
            InvalidManifest: ``problems`` lists the faults.
            BundleError, InvalidBundle: the code can't be packed, or the server refuses it.
        """
        text, path = read_manifest(manifest)
        if code is None:
            return self.sweeps.submit(text, None, overrides)
        with open_bundle(Path(code), leave_out=path) as bundle:
            if bundle:
                self.send_code(bundle, progress)
            return self.sweeps.submit(text, bundle.sha256 if bundle else None, overrides)

    def schedule(
        self,
        manifest: str | Path | Mapping[str, Any],
        code: str | Path | None = None,
        *,
        overrides: Mapping[str, str] | None = None,
        progress: Progress = silent,
    ) -> Schedule:
        """Create a schedule: pack and send the code (unless the server has it already), then the manifest.

        Args:
            manifest: path of the YAML file, or its content as a mapping, with the key ``schedule``, ``on`` or both.
            code: folder or zip of the training code; None: the command needs no code.
            overrides: values by path, ``{"schedule.cron": "0 3 * * *"}``.
            progress: called with the numbers of bytes of the code that have been sent.

        Raises:
            InvalidManifest: ``problems`` lists the faults.
            BundleError, InvalidBundle: the code can't be packed, or the server refuses it.
        """
        text, path = read_manifest(manifest)
        if code is None:
            return self.schedules.create(text, None, overrides)
        with open_bundle(Path(code), leave_out=path) as bundle:
            if bundle:
                self.send_code(bundle, progress)
            return self.schedules.create(text, bundle.sha256 if bundle else None, overrides)

    def send_code(self, bundle: Bundle, progress: Progress = silent) -> bool:
        """Upload a bundle unless the server has it; returns whether bytes were sent.

        Raises:
            InvalidBundle: the server refuses the zip: it is damaged, is too large, or has names that lead out of it.
        """
        return code_on_server.send(self._transport, bundle, progress)

    def validate(
        self, manifest: str | Path | Mapping[str, Any], overrides: Mapping[str, str] | None = None
    ) -> Validation:
        """Let the server check a manifest, without submitting it.

        Raises:
            InvalidManifest: ``problems`` lists the faults.
        """
        return self.jobs.validate(read_manifest(manifest)[0], overrides)

    def job(self, reference: str) -> Job:
        """A job by id, beginning of an id, unique name, or ``@last``; see :meth:`Jobs.find`."""
        return self.jobs.find(reference)

    # --- the installation ------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check that a Weft server answers; no secret is sent.

        Raises:
            NotWeft: another server answers.
            Unavailable: the server can't be reached.
        """
        with suppress(ApiError):  # Weft's own answer for 'not signed in'
            self._transport.json("GET", "/session", signed=False, holds="user")

    def me(self) -> Me:
        """The user, the project and the role of the token."""
        data = self._transport.json("GET", "/me", holds="user")
        budget = Budget.from_json(data["budget"]) if data.get("budget") else None
        user, project, role = (_name(data.get(key)) for key in ("user", "project", "role"))
        return Me(user, project, role, budget)

    def login(self, user: str, password: str, project: str | None = None) -> str:
        """Create a token for a user, by the user's password.

        Raises:
            AuthenticationError: the password is wrong.
        """
        body = {"user": user, "password": password} | ({"project": project} if project else {})
        return str(self._transport.json("POST", "/login", json=body, signed=False, holds="token")["token"])

    def begin_login(self, project: str | None = None) -> WaitingLogin:
        """Begin a sign-in that a user confirms in a browser (the device flow of RFC 8628).

        Raises:
            ApiError: the server knows no such sign-in, or too many wait.
        """
        body = {"client": f"weft on {socket.gethostname()}"[:100]} | ({"project": project} if project else {})
        made = self._transport.json("POST", "/device", json=body, signed=False, holds="device_code")
        link = self.url + str(made["path_complete"])
        wait = float(made.get("interval") or 5)
        return WaitingLogin(link, str(made["user_code"]), str(made["device_code"]), wait)

    def finish_login(self, waiting: WaitingLogin) -> str:
        """Wait until the user has confirmed the sign-in; returns the token.

        Raises:
            ApiError: the user has refused it (``access_denied``), or it has expired (``expired_token``).
        """
        body = {"device_code": waiting.device_code}
        seconds = waiting.interval
        while True:
            try:
                made = self._transport.json("POST", "/device:token", json=body, signed=False, holds="token")
            except ApiError as error:
                if error.code not in ("authorization_pending", "slow_down"):
                    raise
                seconds += 5 * (error.code == "slow_down")  # as RFC 8628 has it
                time.sleep(seconds)
            else:
                return str(made["token"])

    def sign_in_link(self) -> SignInLink:
        """A link that signs in a browser as this token's user, once and within minutes.

        Raises:
            PermissionDenied: this client has a password instead of a token.
        """
        answer = self._transport.json("POST", "/session/links", holds="path")
        return SignInLink(self.url + str(answer["path"]), parse_time(answer.get("expires_at")))

    def engines(self) -> list[Engine]:
        """All engines, and how busy they are."""
        return [
            Engine.from_json(engine) for engine in self._transport.json("GET", "/engines", holds="engines")["engines"]
        ]

    def engine(self, name: str) -> Engine:
        """One engine, with its nodes and the jobs that wait for it.

        Raises:
            NotFound: there is no such engine.
        """
        return Engine.from_json(self._transport.json("GET", f"/engines/{segment(name)}"))

    def forgive_node(self, engine: str, node: str) -> int:
        """Let a node that jobs blame get learners again; for administrators. Returns how many jobs' attempts blamed it.

        Raises:
            NotFound: there is no such engine, or nothing to forgive.
        """
        path = f"/engines/{segment(engine)}/nodes/{segment(node)}/forgive"
        return int(self._transport.json("POST", path, holds="forgiven")["forgiven"])

    def room(self, name: str, each: Mapping[str, Any]) -> Room:
        """How many learners fit on an engine; ``each`` has ``cpus``, ``gpus``, ``memory`` (bytes) and ``gpu_type``.

        Raises:
            NotFound: there is no such engine.
        """
        size = {key: each.get(key) for key in ("cpus", "gpus", "memory", "gpu_type")}
        return Room.from_json(self._transport.json("GET", f"/engines/{segment(name)}/room", params=size, holds="now"))

    def usage(self, since: str | None = None, until: str | None = None, *, everybody: bool = False) -> Usage:
        """The resources of the engines that users have held.

        Args:
            since: the beginning (ISO 8601, or an age such as ``7d``); None: a day before the end.
            until: the end, in the same forms; None: now.
            everybody: users of all projects, for administrators.
        """
        params = {"since": since, "until": until, "everybody": everybody or None}
        return Usage.from_json(self._transport.json("GET", "/usage", params=params, holds="people"))

    def catalogue(self) -> list[Mapping[str, Any]]:
        """The images that manifests can select by framework and version."""
        return list(self._transport.json("GET", "/catalogue").get("images") or [])

    def server_version(self) -> str:
        """The version of the server."""
        return str(self._transport.json("GET", "/healthz", base="", signed=False, holds="version")["version"])


def read_manifest(manifest: str | Path | Mapping[str, Any]) -> tuple[str, Path | None]:
    """The text of the manifest, and its path if it is a file.

    Raises:
        WeftError: the file can't be read.
    """
    if isinstance(manifest, Mapping):
        import yaml  # takes 10 ms, and most commands write no manifest

        return yaml.safe_dump(dict(manifest), sort_keys=False), None
    path = Path(manifest)
    try:
        return path.read_text(encoding="utf-8-sig"), path
    except FileNotFoundError:
        raise WeftError(f"there is no manifest {path}; `weft init` writes a starter") from None
    except UnicodeDecodeError as error:
        raise WeftError(f"the manifest {path} is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise WeftError(f"the manifest {path} can't be read: {error.strerror}") from error


def _name(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value.get("name") or value.get("id")
    return str(value or "")
