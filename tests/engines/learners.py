"""The API's double for the agents of the suite's runs, and the programs that they run."""

from __future__ import annotations

import uuid
from collections import defaultdict
from typing import Any

from tests.trainer.agents import spec
from tests.trainer.api_double import ApiDouble, LearnerRecord

MARK = "WEFT_SUITE_RUN"
"""A variable of every user process of the suite, by which it is found whatever happened to its parents."""

_FOREVER = "while :; do sleep 0.3; done"
SLEEPS = "echo rank $WEFT_RANK of $WEFT_NUM_LEARNERS; echo ready; exec sleep 600"
POLITE = f"trap 'echo told; sleep 1; echo finished; exit 0' TERM; echo ready; {_FOREVER}"
HEARD = "sleep 4242"
"""The process that :data:`STUBBORN` starts at SIGTERM: visible without an agent that has time to send a line."""
STUBBORN = f"trap 'echo told; {HEARD} &' TERM; echo ready; {_FOREVER}"
EATS_MEMORY = "echo ready; exec python3 -c \"eaten = b'x' * (2 << 30); print('it had enough')\""


class LearnersApi(ApiDouble):
    """The API as the agents of one run see it; ``name`` is the run's.

    It gives a grant to the first agent of a rank alone, and remembers every agent that ever asked.
    """

    def __init__(self, name: str, command: str, learners: int, host: str) -> None:
        specs = {
            rank: spec(command, rank=rank, learners=learners, env={MARK: name}, heartbeat_seconds=1)
            for rank in range(learners)
        }
        super().__init__(specs, host, f"weft_a_{uuid.uuid4().hex}")
        self.asked: defaultdict[int, set[str]] = defaultdict(set)
        """By rank: the agents that wanted to start. A second one is a learner that was started twice."""

    def _start(self, rank: int, learner: LearnerRecord, body: dict[str, Any]) -> Any:
        self.asked[rank].add(body["instance"])
        return super()._start(rank, learner, body)

    @property
    def agents(self) -> dict[int, int]:
        """How many agents each rank has had."""
        return {rank: len(instances) for rank, instances in sorted(self.asked.items())}

    def said(self, line: str) -> bool:
        """Whether every learner's command has printed this line."""
        return all(line in self.learners[rank].lines for rank in self.specs)

    def count(self, line: str) -> int:
        """How often the learners' commands have printed it, all together."""
        return sum(self.learners[rank].lines.count(line) for rank in self.specs)
