"""``python -m weft_trainer.launchers.horovod_driver PORT MIN MAX HOSTS``: Horovod's elastic driver, beside the leader.

The leader's agent names the gang that it drives (``PUT /weft-hosts/all``); at the start, the gang is HOSTS. The driver
starts no process. A worker waits for ``GET /weft-start/<host>:<slot>``. It starts when the driver needs it, or gets
``null`` when training has ended (``PUT /weft-end/all``) without it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

# Only the Horovod images have it, and only this helper process imports it.
from horovod.runner.common.util.hosts import parse_hosts
from horovod.runner.elastic import driver as horovod_driver
from horovod.runner.elastic.discovery import HostDiscovery, HostManager
from horovod.runner.elastic.rendezvous import create_rendezvous_handler
from horovod.runner.gloo_run import create_slot_env_vars
from horovod.runner.http.http_server import RendezvousHTTPServer

_POLL = 0.25
_LOST = 1


class Gang(HostDiscovery):  # type: ignore[misc]
    """The hosts that are in the round (one for each learner), with their slots."""

    def __init__(self, hosts: str) -> None:
        self.set(hosts)

    def set(self, hosts: str) -> None:
        self._slots = {host.hostname: host.slots for host in parse_hosts(hosts)}

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        return dict(self._slots)

    def __contains__(self, host: str) -> bool:
        return host in self._slots


class Workers:
    """The workers that the driver needs. Agents start them."""

    def __init__(self, gang: Gang) -> None:
        self._gang = gang
        self._wanted: dict[str, bytes] = {}
        self._unwanted: bytes | None = None
        """The answer for a slot for which the driver needs no worker."""

    def assignment(self, slot: str) -> bytes | None:
        """A slot's first environment (JSON), once the driver needs its worker; ``null``: it never will."""
        return self._wanted.get(slot, self._unwanted)

    def end(self) -> None:
        """Answer agents that still wait for an assignment: none will come."""
        self._unwanted = b"null"

    def start(self, slot: Any, events: Sequence[threading.Event]) -> tuple[int, float]:
        """The driver's ``create_worker_fn``: returns when the worker is lost, with its exit code and the time."""
        env = create_slot_env_vars(slot) | {
            "RANK": str(slot.rank),
            "WORLD_SIZE": str(slot.size),
            "LOCAL_RANK": str(slot.local_rank),
            "LOCAL_WORLD_SIZE": str(slot.local_size),
        }
        self._wanted[f"{slot.hostname}:{slot.local_rank}"] = json.dumps(env).encode()
        while slot.hostname in self._gang and not any(event.is_set() for event in events):
            time.sleep(_POLL)
        return _LOST, time.time()


class Rendezvous:
    """The part of Horovod's RendezvousServer that the driver needs, at a port that the learners already know."""

    def __init__(self) -> None:
        self.server: Any = None

    def init(self, assignments: list[Any]) -> None:
        self.server.init(assignments)

    def stop(self) -> None:
        """Do nothing: the agent ends this process when no learner needs it any more."""


def in_order(available: set[str], prior: list[str]) -> list[str]:
    """The known hosts first, then the new ones by number: rank 0 stays with the leader, whose checkpoints count."""
    known = [host for host in prior if host in available]
    return known + sorted(available.difference(known), key=lambda host: int(host.rpartition("-")[2]))


def main(port: int, least: int, most: int, hosts: str) -> None:
    HostManager.order_available_hosts = staticmethod(in_order)  # Horovod's own takes new ones in the order of a set
    horovod_driver.DISCOVER_HOSTS_FREQUENCY_SECS = _POLL
    gang, rendezvous = Gang(hosts), Rendezvous()
    workers = Workers(gang)
    driver = horovod_driver.ElasticDriver(rendezvous, gang, least, most)

    class Handler(create_rendezvous_handler(driver)):  # type: ignore[misc]
        def _get_value(self, scope: str, key: str) -> bytes | None:
            found: bytes | None = workers.assignment(key) if scope == "weft-start" else super()._get_value(scope, key)
            return found

        def _put_value(self, scope: str, key: str, value: bytes) -> None:
            if scope == "weft-hosts":
                gang.set(value.decode())
            elif scope == "weft-end":
                workers.end()
            else:
                super()._put_value(scope, key, value)

    rendezvous.server = RendezvousHTTPServer(("0.0.0.0", port), Handler, 0)  # noqa: S104
    threading.Thread(target=rendezvous.server.serve_forever, daemon=True).start()
    driver.start(sum(gang.find_available_hosts_and_slots().values()), workers.start)
    threading.Event().wait()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
