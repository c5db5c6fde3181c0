"""The API as users and learners use it: over HTTP, on a real server, with real Postgres, Redis and S3 behind it."""

from __future__ import annotations

import functools
import io
import ssl
import threading
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import httpx
import pytest
import uvicorn
from argon2 import PasswordHasher
from cryptography.fernet import Fernet
from pydantic import SecretStr
from sqlalchemy import func, update
from tests.servers import Servers

from weft_api.access.attempts import Accepted, AttemptToken
from weft_api.app import create_app
from weft_api.context import Context
from weft_core.engine_settings import LocalSettings
from weft_core.ids import new_id, run_name
from weft_core.lifecycle.states import JobState
from weft_core.settings import S3Settings, Settings
from weft_core.store import jobs
from weft_core.store.backups import hold_deletions
from weft_core.store.models import Attempt, Job, Learner, Member, Project, Token, User
from weft_core.tokens import new_token

PASSWORD = "correct horse battery staple"
_PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients that speak plain HTTP: each default context reads all certificates of the machine, 20 ms of a core."""


PASSWORD_HASH = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)
"""A hash carries its parameters. With these, a sign-in of a test takes no time."""


HELLO = """
name: hello
framework: {name: pytorch, command: echo hello}
"""


@dataclass
class Person:
    """A signed-in user: an HTTP client with a token."""

    http: httpx.Client
    name: str
    user_id: str
    project: str
    project_id: str
    token: str = field(repr=False)

    def submit(self, manifest: str = HELLO, **body: Any) -> dict[str, Any]:
        answer = self.http.post("/api/v1/jobs", json={"manifest": manifest, **body})
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made


@dataclass
class Agent:
    """A learner's agent, as far as the API can tell."""

    http: httpx.Client
    rank: int
    instance: str = field(default_factory=lambda: str(uuid.uuid4()))

    def post(self, verb: str, **body: Any) -> httpx.Response:
        return self.http.post(f"/api/v1/learner/{verb}", json={"rank": self.rank, "instance": self.instance, **body})

    def start(self) -> dict[str, Any]:
        answer = self.post("start", hostname="here")
        assert answer.status_code == 200, answer.text
        spec: dict[str, Any] = answer.json()
        return spec

    def log(self, sequence: int, *lines: str, t: int = 1_769_847_309_000) -> None:
        answer = self.post("logs", sequence=sequence, lines=[{"t": t, "s": line} for line in lines])
        assert answer.status_code == 204, answer.text


@dataclass
class Attempted:
    """An open attempt of a job, with the agents of its gang."""

    id: str
    job_id: str
    n: int
    token: str = field(repr=False)
    agents: list[Agent] = field(default_factory=list)


class Api:
    """The server under test, what is behind it, and people to talk to it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.app = app = create_app(settings)
        self.context: Context = app.state.context
        config = uvicorn.Config(
            app,
            port=0,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
            timeout_keep_alive=300,  # after 5 s, a client of a busy machine would send to a connection that ends
            ws_ping_timeout=600,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._clients: list[httpx.Client] = []

    @functools.cached_property
    def openapi(self) -> dict[str, Any]:
        return self.app.openapi()

    def stop(self) -> None:
        for client in self._clients:
            client.close()
        self._server.should_exit = True
        self._thread.join(300)

    def client(self, token: str | None = None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        client = httpx.Client(base_url=self.url, headers=headers, timeout=120, verify=_PLAIN)
        self._clients.append(client)
        return client

    def person(self, role: str = "owner", project_id: str | None = None) -> Person:
        """A new user, in a new project unless one is given."""
        token = new_token("user")
        name = new_id("user")
        with self.context.database.transaction() as session:
            if project_id is None:
                project = Project(id=new_id("prj"), name=new_id("project"))
                session.add(project)
            else:
                project = session.get_one(Project, project_id)
            user = User(id=new_id("usr"), name=name, password_hash=PASSWORD_HASH)
            session.add(user)
            session.flush()
            session.add(Member(project_id=project.id, user_id=user.id, role=role))
            session.add(
                Token(
                    id=new_id("tok"),
                    project_id=project.id,
                    user_id=user.id,
                    name="test",
                    prefix=token.prefix,
                    sha256=token.sha256,
                )
            )
        return Person(self.client(token.plain), name, user.id, project.name, project.id, token.plain)

    def attempt(self, job_id: str) -> Attempted:
        """Open the job's next attempt, as the workers do."""
        token = new_token("attempt")
        with self.context.database.transaction() as session:
            job = session.get_one(Job, job_id)
            job.attempt += 1
            row = Attempt(
                id=new_id("att"),
                project_id=job.project_id,
                job_id=job_id,
                n=job.attempt,
                engine=job.engine,
                run_name=run_name(job_id, job.attempt),
                resources={"cpus": 1, "gpus": 0, "memory": 1 << 30, "learners": job.learners},
                token_sha256=token.sha256,
                token_ciphertext=self.context.box.encrypt(token.plain),
            )
            session.add(row)
            session.flush()
            session.add_all(
                Learner(attempt_id=row.id, rank=rank, project_id=job.project_id) for rank in range(job.learners)
            )
            learners = job.learners
        http = self.client(token.plain)
        agents = [Agent(http, rank) for rank in range(learners)]
        return Attempted(row.id, job_id, row.n, token.plain, agents)

    def set_attempt(self, attempt: Attempted, **values: Any) -> None:
        with self.context.database.transaction() as session:
            session.execute(update(Attempt).where(Attempt.id == attempt.id).values(**values))

    def end_attempt(self, attempt: Attempted) -> None:
        self.set_attempt(attempt, ended_at=func.now(), outcome="SUCCEEDED")

    def set_state(self, job_id: str, state: str, reason: str = "") -> None:
        """Move the job as the workers do, event and wake-up included."""
        with self.context.database.transaction() as session:
            job = session.get_one(Job, job_id)
            jobs.transition(session, job, JobState(state), reason)
        self.context.wake.changed(job_id)


@pytest.fixture(scope="module")
def api_settings(servers: Servers, postgres_url: str, redis_url: str, s3: S3Settings) -> Settings:
    return Settings(
        database_url=SecretStr(postgres_url),
        redis_url=SecretStr(redis_url),
        secret_keys=[SecretStr(Fernet.generate_key().decode())],
        s3=s3,
        engines={"local": LocalSettings()},
    )


@pytest.fixture(scope="module")
def api(api_settings: Settings) -> Iterator[Api]:
    running = Api(api_settings)
    yield running
    running.stop()


@pytest.fixture
def ann(api: Api) -> Person:
    """Someone with a project of her own."""
    return api.person()


@pytest.fixture
def bob(api: Api) -> Person:
    """Someone else, with another project."""
    return api.person()


@pytest.fixture
def root(api: Api) -> Person:
    """An administrator with a project of its own."""
    person = api.person()
    with api.context.database.transaction() as session:
        session.execute(update(User).where(User.id == person.user_id).values(is_admin=True))
    return person


def zipped(**files: str) -> bytes:
    """A zip with these files; ``__`` in a name is a dot."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "."), text)
    return buffer.getvalue()


def until(condition: Callable[[], object]) -> None:
    """Wait for it, at most a minute."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "not within a minute"
        time.sleep(0.01)


def code_of(answer: Any) -> str:
    """The stable code of a problem. Starlette's test client has a response of httpx2 where that is installed."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    code: str = answer.json()["code"]
    return code


def backup(api: Api) -> AbstractContextManager[None]:
    """The time in which a backup is being made."""
    url = api.context.settings.database_url.get_secret_value()
    return hold_deletions(url.replace("postgresql+psycopg://", "postgresql://"))


def sizes_of_groups(monkeypatch: pytest.MonkeyPatch, ingest: ModuleType) -> list[int]:
    """How many bodies this module's `take_in` gets at once, for each call from now on."""
    sizes: list[int] = []
    real = ingest.take_in

    def counted(context: Context, token: AttemptToken, calls: Sequence[bytes]) -> list[Accepted | Exception]:
        sizes.append(len(calls))
        found: list[Accepted | Exception] = real(context, token, calls)
        return found

    monkeypatch.setattr(ingest, "take_in", counted)
    return sizes
