"""``python -m weft_trainer.ray_gang.alone SUBMISSION_ID NOTES``: the entrypoint of a run with one learner.

A gang of one learner needs neither a driver nor a placement group: Ray places its job with the learner's resources, and
the job's own process starts and stops the agent. That spares Ray two processes, which are most of the cost of starting
a small job. The process is not even one of the cluster's: it needs only the key-value store.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from ray._private.state import state as cluster_state
from ray._raylet import GcsClientOptions

from weft_trainer.ray_gang.board import Board, connect
from weft_trainer.ray_gang.driver import STOPPED_BY_HAND, address_of, explain, give_up, leave, node_names, unless_away
from weft_trainer.ray_gang.learner import Learner
from weft_trainer.ray_gang.orders import StopOrders

_TICK = 0.3  # seconds between two checks for a stop request


def run(board: Board, request: dict[str, Any], run_name: str, place: dict[str, str], address: str) -> None:
    """The learner, from its start to its end.

    Args:
        place: ``node``, its name, and ``node_id``.
        address: where other learners would reach it.
    """
    parent = os.getppid()  # Ray's own actor for this job; if its raylet dies, Ray does not end the job's process
    learner, orders = Learner(run_name, 0), StopOrders(board, float(request["grace"]))
    said: dict[str, Any] = {"state": "STARTING", "reason": "", **place}
    status: dict[str, Any] = {"learners": [said]}

    def end(**how: Any) -> None:
        if orders.by_hand:
            how |= {"interrupted": True, "reason": STOPPED_BY_HAND}
        said.update(state="EXITED", **how)

    def check_stop() -> bool:
        new = orders.check()
        if orders.by_engine:
            status["stopped"] = True
        return new

    try:
        check_stop()
        if orders.given:
            return end(exit_code=-15, interrupted=True, reason="stopped before it had room")
        first = learner.start_here(request, Path(__file__).resolve().parents[2], address)
        if "failed" in first:
            status.update(failed=first["failed"], failed_code="S103")
            return end(exit_code=1, reason=first["failed"])
        said.update(state="RUNNING")
        board.publish(status)
        while (report := learner.ended(_TICK)) is None:
            if os.getppid() != parent:
                os._exit(1)  # and the guard ends the agent: a job that Ray has lost may run elsewhere already
            if check_stop():
                learner.stop(orders.left)
        check_stop()
        end(**explain(report))
    finally:
        board.publish(status)


def main(submission_id: str, notes: str) -> int:
    return unless_away(lambda: _drive(submission_id, notes))


def _drive(submission_id: str, notes: str) -> int:
    address = os.environ["RAY_ADDRESS"]
    connect(address)
    board = Board(submission_id, notes)
    request = board.take_request()
    if request is None:
        return give_up()
    cluster_state._initialize_global_state(GcsClientOptions.create(address, None, True, True))
    nodes, here = cluster_state.node_table(), board.node_id()
    place = {"node": node_names(nodes).get(here, ""), "node_id": here}
    run(board, request, submission_id, place, address_of(here, nodes))
    leave(board)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
