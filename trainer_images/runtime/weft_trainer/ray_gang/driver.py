"""The driver of a run: it gets room for the gang, starts an actor for each learner, and publishes their states."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import sys
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError
from ray.util.placement_group import (
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from weft_trainer.ray_gang import learner as learner_module
from weft_trainer.ray_gang.board import Board
from weft_trainer.ray_gang.orders import StopOrders
from weft_trainer.words import describe_exit, size

_CONFIG_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"
_TICK = 0.3  # seconds between two checks for a stop request
_NODE_VERDICT = 5.0
"""Seconds within which Ray notices the loss of a node that has reported an actor's death shortly before its own end."""
STOPPED_BY_HAND = "its job was stopped on the Ray cluster"


class Gang:
    """One run, from its request to its end."""

    def __init__(self, board: Board, request: Mapping[str, Any]) -> None:
        self._board = board
        self._request = request
        self._size = int(request["learners"])
        self._actors: list[Any] = []
        self._orders: list[tuple[Any, ...]] = []
        self._asked: dict[Any, int] = {}  # pending Ray call → the rank that answers it
        self._started = [False] * self._size
        self._again = [False] * self._size
        self._make_actor: Callable[..., Any]
        self._nodes = [""] * self._size  # ids
        self._stop = StopOrders(board, float(request["grace"]))
        self._status: dict[str, Any] = {
            "learners": [{"state": "STARTING", "reason": "its driver has started"} for _ in range(self._size)]
        }
        self._published: str = ""

    def run(self) -> None:
        bundle = make_bundle(self._request, node_resources())
        self._all(state="STARTING", reason=waiting_reason(self._size, bundle))
        self._publish()
        group = placement_group([bundle] * self._size, strategy="PACK", name=self._request["run_name"])
        try:
            while not group.wait(0):  # Ray counts in whole seconds here
                time.sleep(_TICK)
                self._check_stop()
                if self._stop.given:
                    return self._take_back()
            self._start(group, bundle)
            self._attend()
        finally:
            self._publish()
            remove_placement_group(group)

    # --- start ---

    def _start(self, group: Any, bundle: Mapping[str, float]) -> None:
        places = placement_group_table(group)["bundles_to_node_id"]
        nodes = ray.nodes()
        names = node_names(nodes)
        rest = {name: amount for name, amount in bundle.items() if name not in ("CPU", "GPU", "memory")}
        ray.cloudpickle.register_pickle_by_value(learner_module)
        agent = pack_agent()
        code, digest = ray.put(agent), hashlib.sha256(agent).hexdigest()[:16]
        actor_class = ray.remote(learner_module.Learner)

        def make_actor(rank: int, namespace: str = "weft") -> Any:
            options = actor_class.options(
                name=f"{self._request['run_name']}-{rank}",
                namespace=namespace,
                num_cpus=bundle.get("CPU", 0),
                num_gpus=bundle.get("GPU", 0),
                memory=bundle.get("memory", 0),
                resources=rest,
                max_restarts=0,
                max_concurrency=4,  # waits, starts and stops at the same time
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank),
            )
            return options.remote(self._request["run_name"], rank)

        self._make_actor = make_actor
        for rank in range(self._size):
            self._nodes[rank] = places[rank]
            self._learner(rank).update(node=names.get(places[rank], ""), node_id=places[rank], reason="")
            self._actors.append(make_actor(rank))
            self._orders.append((dict(self._request), code, digest, address_of(places[rank], nodes)))
            self._ask(rank)
        self._publish()

    # --- while the gang runs ---

    def _attend(self) -> None:
        while self._asked:
            ready, _ = ray.wait(list(self._asked), timeout=_TICK)
            for answer in ready:
                self._hear(answer, self._asked.pop(answer))
            self._check_stop()
            self._publish()

    def _hear(self, answer: Any, rank: int) -> None:
        learner = self._learner(rank)
        try:
            said = ray.get(answer)
        except ActorUnavailableError:
            learner.update(unreachable=True, reason="its node does not answer")
            self._ask(rank)
        except RayActorError as error:
            how = self._why_died(rank, error)
            if not self._begins_again(rank, how):
                self._end(rank, **how)
        except RayError as error:
            self._end(rank, exit_code=1, reason=f"its Ray actor failed: {_headline(error)}")
        else:
            learner.pop("unreachable", None)
            if "failed" in said:
                self._status |= {"failed": said["failed"], "failed_code": "S103"}
                self._end(rank, exit_code=1, reason=said["failed"])
            elif "started" in said:
                self._started[rank] = True
                learner.update(state="RUNNING", reason="")
                self._ask(rank)
                if self._stop.given:
                    self._send_stop(rank)
            else:
                self._end(rank, **explain(said))

    def _begins_again(self, rank: int, how: Mapping[str, Any]) -> bool:
        """Once, if the actor died before its agent ran: Ray was seen to lose a worker that it had just started."""
        if self._started[rank] or self._again[rank] or self._stop.given or how.get("oom") or how.get("interrupted"):
            return False
        self._again[rank] = True
        print(f"learner {rank + 1} is started again: {how['reason']}", flush=True)
        self._actors[rank] = self._make_actor(rank, "weft-again")  # in the first namespace its name stays taken
        self._ask(rank)
        return True

    def _ask(self, rank: int) -> None:
        """Wait for the learner's start, then for its end. Both questions may be asked again."""
        actor = self._actors[rank]
        answer = actor.wait.remote() if self._started[rank] else actor.start.remote(*self._orders[rank])
        self._asked[answer] = rank

    def _end(self, rank: int, **how: Any) -> None:
        learner = self._learner(rank)
        learner.pop("unreachable", None)
        if self._stop.by_hand:
            how |= {"interrupted": True, "reason": STOPPED_BY_HAND}
        learner.update(state="EXITED", **how)
        print(f"learner {rank + 1} ended: {how}", flush=True)
        ray.kill(self._actors[rank])

    def _why_died(self, rank: int, error: Exception) -> dict[str, Any]:
        text = str(error)
        node, name = self._nodes[rank], self._learner(rank).get("node", "")
        if re.search(r"low on memory|OutOfMemory|out-of-memory", text):
            reason = "killed by Ray's memory monitor: its node was running out of memory"
            return {"exit_code": -9, "oom": True, "reason": reason}
        if self._is_lost(node, text):
            return {"exit_code": -9, "interrupted": True, "reason": f"its node {name} was lost"}
        return {"exit_code": -9, "reason": f"its Ray actor was killed: {_headline(error)}"}

    @staticmethod
    def _is_lost(node: str, text: str) -> bool:
        if re.search(r"node (has|had)? ?(died|was terminated|is dead)", text):
            return True
        deadline = time.monotonic() + (_NODE_VERDICT if "connection" in text.lower() else 0.0)
        while True:
            alive = {known["NodeID"] for known in ray.nodes() if known["Alive"]}
            if node not in alive or time.monotonic() >= deadline:
                return node not in alive
            time.sleep(0.5)

    # --- stop ---

    def _check_stop(self) -> None:
        new = self._stop.check()
        if self._stop.by_engine:
            self._status["stopped"] = True
        if new:
            for rank in range(len(self._actors)):
                self._send_stop(rank)

    def _send_stop(self, rank: int) -> None:
        if self._started[rank] and self._learner(rank)["state"] != "EXITED":
            self._actors[rank].stop.remote(self._stop.left)

    def _take_back(self) -> None:
        """No learner was started yet."""
        reason = STOPPED_BY_HAND if self._stop.by_hand else "stopped before it had room"
        self._all(state="EXITED", exit_code=-15, interrupted=True, reason=reason)

    # --- the published status ---

    def _learner(self, rank: int) -> dict[str, Any]:
        learner: dict[str, Any] = self._status["learners"][rank]
        return learner

    def _all(self, **what: Any) -> None:
        for learner in self._status["learners"]:
            learner.update(what)

    def _publish(self) -> None:
        now = json.dumps(self._status)
        if now != self._published:
            self._board.publish(self._status)
            self._published = now


# --- names and words ---


def make_bundle(request: Mapping[str, Any], there: Sequence[str]) -> dict[str, float]:
    """The resources that one learner reserves.

    Args:
        there: the names of the resources that the cluster's nodes have.
    """
    bundle = {"CPU": request["cpus"], "GPU": request["gpus"], "memory": request["memory"], **request["extra"]}
    if request["gpus"] and request["gpu_type"]:
        types = [name.partition(":")[2] for name in there if name.startswith("accelerator_type:")]
        known = [*types, *request["gpu_types"]]
        fitting = (name for name in known if _plain(request["gpu_type"]) in _plain(name))
        bundle[f"accelerator_type:{next(fitting, request['gpu_type'])}"] = 0.001
    return {name: amount for name, amount in bundle.items() if amount}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def waiting_reason(learners: int, bundle: Mapping[str, float]) -> str:
    shown = ", ".join(f"{name}: {_amount(name, amount)}" for name, amount in bundle.items())
    return f"waiting for room in the Ray cluster: {learners} × {{{shown}}}; its autoscaler is asked"


def _amount(name: str, amount: float) -> str:
    return size(amount) if name == "memory" else f"{amount:g}"


def node_resources() -> list[str]:
    """The names of the nodes' resources; the largest sum comes first."""
    sums: dict[str, float] = ray.cluster_resources()
    return sorted(sums, key=lambda name: -sums[name])


def node_names(nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Names for people, by node id; the same as in the engine's capacity."""
    alive = {node["NodeID"]: node["NodeName"] or node["NodeManagerAddress"] for node in nodes if node["Alive"]}
    names = list(alive.values())
    return {key: name if names.count(name) == 1 else f"{name}-{key[-6:]}" for key, name in alive.items()}


def address_of(node: str, nodes: Sequence[Mapping[str, Any]]) -> str:
    return next((str(entry["NodeManagerAddress"]) for entry in nodes if entry["NodeID"] == node), "")


def explain(report: Mapping[str, Any]) -> dict[str, Any]:
    """The end of an agent, from its guard's report."""
    code = int(report["exit_code"])
    if code == 0:
        return {"exit_code": 0, "reason": ""}
    reason = describe_exit(code)
    if code > 0:
        return {"exit_code": code, "reason": f"{reason}: {report['tail']}" if report.get("tail") else reason}
    if report.get("oom"):
        reason += ", probably out of memory"
    elif report.get("killed"):
        reason += f": {report['killed']}"
    return {"exit_code": code, "oom": bool(report.get("oom")), "reason": reason}


def _headline(error: Exception) -> str:
    """The first line of Ray's message that is not empty."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def pack_agent() -> bytes:
    """This package ``weft_trainer`` as a zip."""
    folder = Path(__file__).resolve().parents[1]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                name = zipfile.ZipInfo(str(path.relative_to(folder.parent)))
                name.external_attr = 0o644 << 16
                archive.writestr(name, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def unless_away(drive: Callable[[], int]) -> int:
    """Run a driver. Returns its exit status; ``EX_TEMPFAIL`` if the cluster does not answer it: a later try may
    succeed."""
    try:
        return drive()
    except (RayError, ConnectionError, TimeoutError) as error:
        print(f"the cluster does not answer: {_headline(error)}", file=sys.stderr)
        return os.EX_TEMPFAIL


def main(submission_id: str, notes: str) -> int:
    return unless_away(lambda: _drive(submission_id, notes))


def _drive(submission_id: str, notes: str) -> int:
    # The actors need nothing of the job's environment, so they get workers that Ray has started already.
    config = json.loads(os.environ.get(_CONFIG_VARIABLE, "{}"))
    os.environ[_CONFIG_VARIABLE] = json.dumps({**config, "runtime_env": {}})
    ray.init(log_to_driver=False, logging_level="warning")
    board = Board(submission_id, notes)
    request = board.take_request()
    if request is None:
        return give_up()
    Gang(board, request).run()
    leave(board)
    return 0


def give_up() -> int:
    print("the request for this run is not in Ray's key-value store (any more)", file=sys.stderr)
    return 1


def leave(board: Board) -> None:
    board.clear()
    sys.stdout.flush()
    os._exit(0)  # Ray's own shutdown takes a second, and does nothing that matters here
