"""How the learners of a job with the launcher ``slurm`` reach each other: a node serves in each of them.

A request is the gang's secret on a line, then a JSON document on a line. The answers are JSON documents, one a line:
- ``{"what": "environment"}``: the variables that the node started with, and the number of the next step;
- ``{"what": "run", …}``: start the tasks of a step (:class:`~weft_trainer.launchers.slurm_tasks.Step`). An answer tells
  the end of each task. On the same connection, ``{"signal": 15}`` signals the tasks and ``{"end": true}`` ends them.
  They are ended, too, when the connection closes;
- ``{"what": "end"}``: the batch script has ended well.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

VARIABLE = "WEFT_SLURM"
_RETRY = 0.1
_SECONDS = 540.0
"""How long a node may take to serve after the gang has met: many processes start, on perhaps one busy CPU."""

Message = Mapping[str, Any]


class NodeUnreachable(Exception):
    """The message is for the user."""


@dataclass(frozen=True)
class Gang:
    """The nodes, as the process of one of them sees them.

    Attributes:
        rank: the learner of this process.
        nodes: address and port of each learner's node, by rank.
        agent: the process that stops this learner's processes all at once; 0: not known yet.
    """

    secret: str = field(repr=False)
    rank: int
    nodes: tuple[tuple[str, int], ...]
    agent: int = 0

    @classmethod
    def from_environment(cls) -> Gang:
        """Raises: KeyError: this process is not one of a job with the launcher ``slurm``."""
        found = json.loads(os.environ[VARIABLE])
        return cls(found["secret"], found["rank"], tuple((node[0], node[1]) for node in found["nodes"]), found["agent"])

    @property
    def variable(self) -> dict[str, str]:
        """The environment variable from which the gang is read again."""
        return {VARIABLE: json.dumps(asdict(self))}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the nodes, as in SLURM_JOB_NODELIST: addresses, so that every program can connect to them."""
        return tuple(address for address, _ in self.nodes)

    def describe(self, rank: int) -> str:
        return f"learner {rank + 1} ({self.names[rank]})"

    def ask(self, rank: int, request: Message, stopped: Callable[[], bool] = lambda: False) -> Connection:
        """Send a request to a learner's node, as soon as it serves.

        Args:
            stopped: whether to give up.

        Raises:
            NodeUnreachable: it does not serve.
        """
        end = time.monotonic() + _SECONDS
        while True:
            try:
                return Connection(self.nodes[rank], self.secret, request)
            except OSError as error:
                if stopped() or time.monotonic() > end:
                    raise NodeUnreachable(f"{self.describe(rank)} does not answer: {error}") from None
                time.sleep(_RETRY)


class Connection:
    """A request to a node. Iterating gives the answers until the node closes the connection.

    Raises:
        OSError: the node does not serve, or not any more.
    """

    def __init__(self, place: tuple[str, int], secret: str, request: Message) -> None:
        self._socket = socket.create_connection(place, timeout=10)
        self._socket.settimeout(None)
        # A step may take days, for which middle boxes don't remember a silent connection.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        self._answers = self._socket.makefile("rb")
        self._socket.sendall(secret.encode() + b"\n")
        self.send(request)

    def send(self, message: Message) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def __iter__(self) -> Iterator[Message]:
        for line in self._answers:
            yield json.loads(line)

    def only(self) -> Message:
        """The one answer."""
        for answer in self:
            self.close()
            return answer
        raise OSError("the connection was closed")

    def close(self) -> None:
        """End the connection, and with it any iteration over the answers."""
        with contextlib.suppress(OSError):  # the node has ended it
            self._socket.shutdown(socket.SHUT_RDWR)
