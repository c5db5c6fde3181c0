"""``python -m weft_trainer.launchers.horovod_rendezvous PORT HOSTS``: Horovod's rendezvous, served by learner 1."""

from __future__ import annotations

import sys

# Only the Horovod images have it, and only this helper process imports it.
from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer


def main(port: int, hosts: str) -> None:
    parsed = parse_hosts(hosts)
    slots = sum(host.slots for host in parsed)
    # Not RendezvousServer, which picks a port of its own: the other learners know this one already.
    server = RendezvousHTTPServer(("0.0.0.0", port), RendezvousHandler, 0)  # noqa: S104
    server.init(get_host_assignments(parsed, slots, slots))
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
