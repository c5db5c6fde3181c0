"""Celery's broker: Redis, by Kombu's transport."""

from __future__ import annotations

from kombu.transport import redis, virtual


class QoS(redis.QoS):
    """Kombu's count of the messages that a worker may still take, without its leak.

    Kombu counts a message as done only after Redis has noted that. When Redis dies in between, the message counts as
    taken for ever. With one message for each process, the worker then takes no other, and does not even watch the
    connection that would show it that Redis is back. Celery logs the failure and expects the connection to be made
    anew, which drops the message anyhow: Redis delivers it again, and a step may run twice.
    """

    def ack(self, delivery_tag: str) -> None:
        try:
            super().ack(delivery_tag)
        finally:
            virtual.QoS.ack(self, delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        try:
            super().reject(delivery_tag, requeue)
        finally:
            virtual.QoS.ack(self, delivery_tag)


def use() -> None:
    """Let Kombu's Redis channels count in this way, in this process."""
    redis.Channel.QoS = QoS
