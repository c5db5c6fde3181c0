from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3
import pytest
from tests.trainer.agents import Agent, Launch, spec
from tests.trainer.api_double import ApiDouble
from tests.trainer.faulty_s3 import FaultyS3

from weft_core.settings import S3Settings

StartApi = Callable[..., ApiDouble]
Proxied = Callable[..., FaultyS3]


@pytest.fixture
def start_api() -> Iterator[StartApi]:
    """``start_api(command, learners=1, **changes of the spec)``: an API that has such a job."""
    with ExitStack() as stack:

        def start(command: str, learners: int = 1, **changes: Any) -> ApiDouble:
            specs = {rank: spec(command, rank=rank, learners=learners, **changes) for rank in range(learners)}
            return stack.enter_context(ApiDouble(specs).serving())

        yield start


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """``launch(api, rank=0, folder='', python=…, **env)``: an agent's process, in a working folder for this rank."""
    agents: list[Agent] = []

    def start(api: ApiDouble, rank: int = 0, folder: str = "", **env: str) -> Agent:
        agent = Agent(api, tmp_path / (folder or f"learner-{rank + 1}"), tmp_path / "cache", rank, **env)
        agents.append(agent)
        return agent

    yield start
    for agent in agents:
        agent.end()


class Bucket:
    """The test module's bucket in a real S3, and how a spec points into it."""

    def __init__(self, settings: S3Settings) -> None:
        self._settings = settings
        self.client = boto3.client(
            "s3",
            endpoint_url=settings.endpoint,
            region_name=settings.region,
            aws_access_key_id=settings.access_key,
            aws_secret_access_key=settings.secret_key.get_secret_value(),
        )

    def location(self, prefix: str, **changes: str) -> dict[str, Any]:
        return {
            "endpoint": self._settings.endpoint,
            "region": self._settings.region,
            "access_key": self._settings.access_key,
            "secret_key": self._settings.secret_key.get_secret_value(),
            "container": self._settings.bucket,
            "prefix": prefix,
            **changes,
        }

    def put(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=self._settings.bucket, Key=key, Body=data)

    def get(self, key: str) -> bytes:
        return self.client.get_object(Bucket=self._settings.bucket, Key=key)["Body"].read()

    def url(self, key: str) -> str:
        """A presigned GET."""
        return self.client.generate_presigned_url("get_object", {"Bucket": self._settings.bucket, "Key": key})

    def keys(self, prefix: str) -> list[str]:
        found = self.client.list_objects_v2(Bucket=self._settings.bucket, Prefix=prefix)
        return [stored["Key"].removeprefix(prefix) for stored in found.get("Contents", [])]


@pytest.fixture
def bucket(s3: S3Settings) -> Bucket:
    return Bucket(s3)


@pytest.fixture
def proxied(s3: S3Settings) -> Iterator[Proxied]:
    """``proxied(rule)``: a way to the real S3 that ``rule`` spoils."""
    with ExitStack() as stack:
        yield lambda rule=lambda request: None: stack.enter_context(FaultyS3(s3.endpoint, rule).serving())
