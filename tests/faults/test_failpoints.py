"""kill -9 before and after every commit, every write to S3 and every call of an engine: nothing is lost, doubled or
stuck.

The failpoints are collected: a life without deaths notes those that it passes. ``make test`` dies at some of them,
which a seed chooses; ``WEFT_TEST_FAILPOINTS`` is another number, a pattern of names, or ``all``.
"""

from __future__ import annotations

import os
import random
import traceback
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

import pytest
from cryptography.fernet import Fernet
from pydantic import SecretStr
from tests.faults.service import INSTALLATION, Service
from tests.faults.story import Story
from tests.servers import Servers, free_port

from weft_core.engine_settings import LocalSettings
from weft_core.ids import new_id
from weft_core.settings import S3Settings, Settings, TimingSettings
from weft_core.store.database import Database
from weft_core.store.models import Installation, Member, Project, Token, User
from weft_core.tokens import new_token

WANTED = os.environ.get("WEFT_TEST_FAILPOINTS", "5")
SEED = int(os.environ.get("WEFT_TEST_SEED", "20261125"))


@pytest.fixture(scope="module")
def own_url(servers: Servers) -> Iterator[str]:
    """A database of these tests alone: jobs that others have left in the queue would be before these."""
    with servers.database_url() as url:
        yield url


@pytest.fixture(scope="module")
def tell(
    own_url: str, redis_url: str, s3: S3Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], int]]:
    """Tells the story with a service that is armed with these rules; returns how often it died."""
    settings = Settings(
        database_url=SecretStr(own_url),
        redis_url=SecretStr(redis_url),
        secret_keys=[SecretStr(Fernet.generate_key().decode())],
        s3=s3,
        engines={"local": LocalSettings()},
        timings=TimingSettings(sweep=0.1, lease=1.0, log_settle=0.0, orphan_grace=1.0, grace=5.0),
    )
    database = Database(own_url)
    with database.transaction() as session:
        session.merge(Installation(singleton=True, id=INSTALLATION))

    def told(rules: str) -> int:
        token = new_token("user")
        with database.transaction() as session:
            project, user = Project(id=new_id("prj"), name=new_id("lab")), User(id=new_id("usr"), name=new_id("user"))
            session.add_all([project, user])
            session.flush()
            session.add(Member(project_id=project.id, user_id=user.id, role="owner"))
            about = {"project_id": project.id, "user_id": user.id, "name": "test"}
            session.add(Token(id=new_id("tok"), prefix=token.prefix, sha256=token.sha256, **about))
        folder = tmp_path_factory.mktemp("engine")
        service = Service(settings, folder, free_port())
        service.start(rules)
        try:
            Story(service, folder, token.plain).tell()
        except AssertionError:
            print(f"armed with {rules}\n{service.said()}")
            raise
        finally:
            service.stop()
        return service.deaths

    yield told
    database.close()


@pytest.fixture(scope="module")
def names(tell: Callable[[str], int], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The failpoints that a life passes."""
    notes = tmp_path_factory.mktemp("notes") / "names"
    assert tell(f"*=note({notes})") == 0
    return sorted(set(notes.read_text().splitlines()))


# Each part of a life has its own patience. All of them take more than an hour.
@pytest.mark.timeout(0)
def test_a_death_at_each_of_them(
    names: list[str], tell: Callable[[str], int], capsys: pytest.CaptureFixture[str]
) -> None:
    if WANTED.isdecimal():
        chosen = random.Random(SEED).sample(names, int(WANTED))
    else:
        chosen = [name for name in names if WANTED == "all" or fnmatchcase(name, WANTED)]
    died, wrong = [], {}
    for number, name in enumerate(chosen, 1):
        try:
            if tell(f"{name}=die"):
                died.append(name)
        except AssertionError:
            wrong[name] = traceback.format_exc()
        with capsys.disabled():
            print(f"\n{number}/{len(chosen)} {name}: {wrong.get(name, 'ok')}", end="", flush=True)
    assert not wrong
    print(f"died at {len(died)} of {len(names)} failpoints:", *died, sep="\n")
    # A few are passed only if two things happen to meet.
    assert len(died) > len(chosen) / 2, f"never passed again: {set(chosen) - set(died)}"
