"""The rounds of an elastic job, in one agent. The test plays the service, which opens the rounds."""

from __future__ import annotations

from typing import Any

from tests.trainer.agents import Launch, spec
from tests.trainer.api_double import ApiDouble, LearnerRecord

_SHOW = 'echo "round $WEFT_ROUND: $(cat $CHECKPOINT_DIR/rounds)"; echo $WEFT_ROUND >> $CHECKPOINT_DIR/rounds; '


class Rounds(ApiDouble):
    """A service that has a gang of one learner in each round."""

    def __init__(self, command: str, rounds: int) -> None:
        super().__init__({0: spec(command, launcher="torchrun", elastic={"min": 1, "max": 2})})
        self.rounds = rounds
        """Learners that arrive after this round are left out."""
        self.open = 1
        self.states: list[tuple[str, int]] = []
        self.broken_rounds: list[dict[str, Any]] = []

    def _round(self, rank: int, learner: LearnerRecord, body: dict[str, Any]) -> Any:
        self.states.append((body["state"], body["round"]))
        if body["state"] == "broken":
            self.broken_rounds.append(body)
            self.open = body["round"] + 1
        elif body["state"] == "running":
            self._changed.wait_for(lambda: self.open > body["round"], body["wait"])
            return {"verdict": "change" if self.open > body["round"] else "wait", "restart": True}
        elif self.open > self.rounds:
            return {"verdict": "leave", "reason": "no more rounds"}
        else:
            peer = {"rank": 0, "address": body["address"], "ports": body["ports"]}
            return {"verdict": "run", "round": self.open, "peers": [peer], "restart": True, "reason": "a test"}
        return {}

    def open_round(self, number: int) -> None:
        with self._changed:
            self.open = number
            self._changed.notify_all()


def test_a_new_round_goes_on_from_the_checkpoint(launch: Launch) -> None:
    with Rounds(_SHOW + "test $WEFT_ROUND = 2 || sleep 300", rounds=2).serving() as api:
        assert isinstance(api, Rounds)
        agent = launch(api)
        api.wait_for(lambda: "round 1: " in api.learners[0].lines)
        api.open_round(2)
        assert agent.wait() == 0, agent.log.read_text()
    lines = api.learners[0].lines
    assert "round 2: 1" in lines
    assert "weft: round 1: rank 0 of 1 (learners 1)" in lines
    told = "weft: round 2: a test: training goes on from the last checkpoint (1 file); rank 0 of 1 (learners 1)"
    assert told in lines
    assert api.learners[0].phases == ["STARTED", "PROCESSING", "STORING", "EXITED"]
    assert api.broken_rounds == []
    assert api.problems == []


def test_a_failure_is_reported_at_once_and_a_learner_that_is_left_out_ends_with_it(launch: Launch) -> None:
    with Rounds("echo working; exit 3", rounds=1).serving() as api:
        assert isinstance(api, Rounds)
        assert launch(api).wait() == 3
    [broken] = api.broken_rounds
    assert (broken["exit_code"], broken["reason"], broken["last_lines"][-1]) == (3, "exit code 3", "working")
    assert api.learners[0].exit is not None
    assert api.learners[0].exit["reason"] == "exit code 3"
    assert api.problems == []
