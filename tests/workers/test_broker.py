"""The broker's messages when Redis is lost between a message and its acknowledgement."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kombu
import pytest
from kombu.transport import redis

from weft_core.wake import broker_url
from weft_embedded.servers import RedisServer
from weft_workers import broker


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with tempfile.TemporaryDirectory(prefix="weft-broker-", dir="/tmp") as name:  # short enough for a socket
        server = RedisServer(Path(name), Path(name), Path(name), Path(name) / "redis.log")
        server.start()
        yield server
        server.stop()


@pytest.mark.parametrize("answer", ["ack", "reject"])
def test_a_worker_takes_messages_again_when_redis_dies_before_an_answer(
    server: RedisServer, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis.Channel, "QoS", redis.Channel.QoS)  # restored afterwards
    broker.use()
    with kombu.Connection(broker_url(server.url)) as connection:
        queue = kombu.Queue("hints")
        connection.Producer().publish("a hint", routing_key="hints", declare=[queue])
        channel: Any = connection.channel()
        channel.basic_qos(0, 1, False)
        taken: list[kombu.Message] = []
        with kombu.Consumer(channel, queue, on_message=taken.append):
            connection.drain_events(timeout=300)
            [message] = taken
            assert not channel.qos.can_consume()
            server.stop()
            with pytest.raises(connection.connection_errors):
                getattr(message, answer)()
            assert channel.qos.can_consume()
            server.start()  # for the consumer's farewell
