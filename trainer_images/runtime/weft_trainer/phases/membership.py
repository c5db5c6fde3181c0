"""An elastic job's rounds as one learner sees them: it is in a round, learns of the next one, and arrives for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from weft_trainer.errors import ApiError, Fenced
from weft_trainer.program.endings import Ending
from weft_trainer.service.client import ApiClient
from weft_trainer.spec import Peer

_WAIT = 20.0  # seconds of one long poll


@dataclass(frozen=True)
class Round:
    n: int
    peers: tuple[Peer, ...]
    """In order of rank; a peer's ``rank`` is its place in the round, from 0."""
    learners: tuple[int, ...]
    """Their learner ids, from 1."""
    me: Peer
    restart: bool
    reason: str


@dataclass(frozen=True)
class Leave:
    """There is no further round for this learner."""

    finished: bool  # whether training has ended well; if not, the others go on without it
    reason: str


class Membership:
    """Thread-safe; one call at a time is on its way to the API."""

    def __init__(self, api: ApiClient, learner_id: int, ring: Callable[[], None]) -> None:
        self._api = api
        self._learner_id = learner_id
        self._ring = ring
        self._calling = threading.Lock()
        self._watch_id = 0  # of the current watch
        self.current: Round | None = None
        self.regroup = False
        """Whether a round has opened for which this learner's workers must be ended."""
        self.dismissed = False
        """Whether the others go on without this learner."""

    def arrive(self, address: str, ports: Sequence[int]) -> Round | Leave:
        """Wait for the next round. Raises: Fenced, ApiError."""
        while True:
            with self._calling:
                answer = self._api.round(
                    _WAIT, state="ready", round=self._number, address=address, ports=list(ports)
                )  # fmt: skip
                if answer["verdict"] == "run":
                    self.current, self.regroup = self._read(answer), False
                    self._watch_id += 1
                    return self.current
            if answer["verdict"] in ("finish", "leave"):
                return Leave(answer["verdict"] == "finish", answer["reason"])

    def broke(self, ending: Ending, last_lines: Sequence[str]) -> None:
        """Report at once that the workers have failed: the learner whose workers failed first is to blame. Raises:
        Fenced, ApiError."""
        with self._calling:
            self._api.round(
                0,
                state="broken",
                round=self._number,
                exit_code=ending.exit_code,
                reason=ending.reason,
                last_lines=last_lines,
            )

    def watch(self, keep: Callable[[Round], None] | None = None) -> None:
        """Wait for the next round in the background, until a round opens for which workers are to be ended.

        Args:
            keep: where workers survive a change of the gang: called with each new round that lets them run on.
        """
        assert self.current is not None
        arguments = self._watch_id, self.current.me, keep
        threading.Thread(target=self._watch, args=arguments, name="rounds", daemon=True).start()

    def _watch(self, watch_id: int, me: Peer, keep: Callable[[Round], None] | None) -> None:
        try:
            while True:
                answer = self._api.round(_WAIT, state="running", round=self._number)
                with self._calling:
                    if watch_id != self._watch_id:
                        return  # this learner has arrived for that round already
                    if answer["verdict"] == "leave":
                        self.dismissed = self.regroup = True
                    elif answer["verdict"] == "change":
                        self.regroup = keep is None or answer["restart"] or not self._pass(me, keep)
                if self.regroup:
                    self._ring()
                    return
        except (Fenced, ApiError):
            return  # the heartbeat gets the same answer, and ends everything

    def _pass(self, me: Peer, keep: Callable[[Round], None]) -> bool:
        """Go into a round with running workers; False: while it was open, it turned out that they have to be ended."""
        answer = self._api.round(1.0, state="ready", round=self._number, address=me.address, ports=list(me.ports))
        if answer["verdict"] == "run" and answer["restart"]:
            return False  # arriving again gives the same answer
        if answer["verdict"] == "run":
            self.current = self._read(answer)
            keep(self.current)
        return True

    @property
    def _number(self) -> int:
        return self.current.n if self.current else 0

    def _read(self, answer: dict[str, Any]) -> Round:
        peers = tuple(Peer(place, peer["address"], tuple(peer["ports"])) for place, peer in enumerate(answer["peers"]))
        learners = tuple(peer["rank"] + 1 for peer in answer["peers"])
        me = peers[learners.index(self._learner_id)]
        return Round(answer["round"], peers, learners, me, answer["restart"], answer["reason"])
