"""Ray's HTTP API, as far as the engine needs it. Every failure is an EngineUnreachable that says what to do."""

from __future__ import annotations

import os
import ssl
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx

from weft_core.engine import EngineUnreachable
from weft_core.engine_settings import RaySettings

_PROTECTED = "/api/version"
_TRUST_SECONDS = 60.0
"""How long Weft relies on a Ray that has asked for its token to go on doing so."""


class Answered(EngineUnreachable):
    """Ray answered, but with an error."""

    def __init__(self, message: str, status: int, text: str) -> None:
        super().__init__(message)
        self.status = status
        self.text = text


class RayClient:
    """Talks to one Ray cluster. Made before a process forks, it connects anew in each."""

    def __init__(self, name: str, settings: RaySettings) -> None:
        self._name = name
        self._settings = settings
        self._address = settings.address.rstrip("/")
        self._lock = threading.Lock()
        self._http: tuple[int, httpx.Client] | None = None  # of this process id
        self._file_token: str | None = None
        self._trusted_until = 0.0

    # --- jobs ---

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs that were submitted, of everybody."""
        return [job for job in _listed(self._json("GET", "/api/jobs/"), self._odd) if job.get("submission_id")]

    def job(self, submission_id: str) -> dict[str, Any] | None:
        """None: there is none."""
        try:
            job = self._json("GET", f"/api/jobs/{quote(submission_id)}")
        except Answered as error:
            if error.status == 404:
                return None
            raise
        if not isinstance(job, dict) or job.get("submission_id") != submission_id:
            raise self._odd(job)
        return job

    def submit(self, job: Mapping[str, Any]) -> bool:
        """False: there is one with this submission id."""
        try:
            self._json("POST", "/api/jobs/", job)
        except Answered as error:
            if "already exists" in error.text:
                return False
            raise
        return True

    def stop_job(self, submission_id: str) -> None:
        """SIGTERM to its driver, SIGKILL after the job's own RAY_JOB_STOP_WAIT_TIME_S."""
        self._unless_missing("POST", f"/api/jobs/{quote(submission_id)}/stop")

    def delete_job(self, submission_id: str) -> None:
        """Ray forgets a job, which has to have ended."""
        self._unless_missing("DELETE", f"/api/jobs/{quote(submission_id)}")

    # --- Ray's key-value store ---

    def has_package(self, name: str) -> bool:
        """Ray keeps it, if it is there, or when it comes, for ten minutes, and then for as long as a job uses it."""
        try:
            self._send("GET", f"/api/packages/gcs/{quote(name)}")
        except Answered as error:
            if error.status == 404:
                return False
            raise
        return True

    def put_package(self, name: str, data: bytes) -> None:
        self._send("PUT", f"/api/packages/gcs/{quote(name)}", content=data)

    # --- state ---

    def nodes(self) -> list[dict[str, Any]]:
        """The living ones."""
        query = "detail=1&limit=10000&filter_keys=state&filter_predicates=%3D&filter_values=ALIVE"
        return self._state(f"/api/v0/nodes?{query}")

    def living_actors(self, job_ids: set[str]) -> list[dict[str, Any]]:
        """Of these Ray jobs."""
        query = "limit=10000&filter_keys=state&filter_predicates=%3D&filter_values=ALIVE"
        return [actor for actor in self._state(f"/api/v0/actors?{query}") if actor.get("job_id") in job_ids]

    def cluster_status(self) -> Mapping[str, Any]:
        """The last report of Ray's autoscaler; every Ray has an autoscaler, whether it can add nodes or not."""
        return _mapping(_mapping(self._json("GET", "/api/cluster_status")).get("data"))

    def logical_resources(self) -> Mapping[str, Any]:
        """Node id → '0.0/2.0 CPU' a line."""
        data = _mapping(_mapping(self._json("GET", "/nodes?view=summary")).get("data"))
        return _mapping(data.get("nodeLogicalResources"))

    def _state(self, path: str) -> list[dict[str, Any]]:
        answer = self._json("GET", path)
        try:
            return _listed(answer["data"]["result"]["result"], self._odd)
        except (TypeError, KeyError):
            raise self._odd(answer) from None

    # --- how it is asked ---

    def _unless_missing(self, method: str, path: str) -> None:
        try:
            self._send(method, path)
        except Answered as error:
            if error.status != 404:
                raise

    def _json(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._send(method, path, json=body) if body is not None else self._send(method, path)
        try:
            return answer.json()
        except ValueError:
            raise self._odd(answer.text) from None

    def _odd(self, answer: Any) -> EngineUnreachable:
        return self._error(f"an answer that makes no sense: {str(answer)[:200]!r}; is this a Ray dashboard?")

    def _send(self, method: str, path: str, **content: Any) -> httpx.Response:
        """Raises: Answered, EngineUnreachable."""
        self._demand_token()
        answer = self._request(method, path, self._token(), **content)
        if answer.status_code in (401, 403) and self._settings.token_file:
            self._file_token = None  # it may have been replaced
            answer = self._request(method, path, self._token(), **content)
        if answer.status_code in (401, 403):
            given = self._settings.token or self._settings.token_file
            what = "the token is refused" if given else "it requires a token: set token or token_file"
            raise self._error(f"{what} ({answer.status_code})")
        if not answer.is_success:
            text = answer.text.strip()
            last = text.splitlines()[-1][:300] if text else ""
            raise Answered(
                f"engine {self._name}: Ray at {self._address}: {method} {path.partition('?')[0]}: "
                f"{answer.status_code} {last}",
                answer.status_code,
                text,
            )
        return answer

    def _demand_token(self) -> None:
        """Refuse a Ray that requires no token: everybody who reaches it could run anything on it."""
        if self._settings.allow_without_token or time.monotonic() < self._trusted_until:
            return
        answer = self._request("GET", _PROTECTED, None)
        if answer.is_success:
            raise self._error(
                "it answers without a token, so everyone who can reach it can run anything on it. Start it with "
                "RAY_AUTH_MODE=token, or set allow_without_token = true for this engine"
            )
        if answer.status_code not in (401, 403):
            raise self._error(f"GET {_PROTECTED}: {answer.status_code}; is this a Ray dashboard?")
        self._trusted_until = time.monotonic() + _TRUST_SECONDS

    def _request(self, method: str, path: str, token: str | None, **content: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            return self._client().request(method, self._address + path, headers=headers, **content)
        except httpx.TimeoutException:
            raise self._error(f"no answer within {self._settings.timeout:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as error:
            raise self._error(str(error) or type(error).__name__) from None

    def _token(self) -> str | None:
        if self._settings.token is not None:
            return self._settings.token.get_secret_value()
        path = self._settings.token_file
        if path is not None and self._file_token is None:
            try:
                self._file_token = path.expanduser().read_text().strip()
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is not text"
                raise self._error(f"the token file {path} can't be read: {why}") from None
        return self._file_token

    def _client(self) -> httpx.Client:
        with self._lock:
            if self._http is None or self._http[0] != os.getpid():
                self._http = (os.getpid(), httpx.Client(timeout=self._settings.timeout, verify=self._verify()))
            return self._http[1]

    def _verify(self) -> ssl.SSLContext | bool:
        path = self._settings.ca_file
        if path is None:
            return True
        try:
            return ssl.create_default_context(cafile=path.expanduser())
        except (OSError, ssl.SSLError) as error:
            raise self._error(f"ca_file {path} can't be used: {error}") from None

    def _error(self, what: str) -> EngineUnreachable:
        return EngineUnreachable(f"engine {self._name}: Ray at {self._address}: {what}")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _listed(value: Any, odd: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise odd(value)
    return value
