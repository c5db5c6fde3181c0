"""HTTP over connections that are kept alive, one for each thread and host: a call costs one round trip.

Why Weft has an HTTP client of its own: the agent runs in users' images without changing their packages, so httpx,
requests and boto3 are out, and the standard library has to do. Its ``http.client`` alone is too slow for data sets of
many small objects, which cost processor time rather than bandwidth. A plain GET therefore goes around it: the agent's
time for a request fell from 0.27 to 0.17 ms. ``http.client`` handles everything else. Measured on two cores, 20,000
objects of 20 KB take 10.4 s, as with s5cmd (10.3 s); boto3 takes 129 s (see ``make bench ARGS=data`` in
benchmarks/README.md).

The rest of the agent imports from here only:

- ``client`` makes requests, and repeats a request whose connection had gone stale.
- ``connections`` opens connections and keeps them: TLS, and the way through a proxy.
- ``proxy`` reads the environment's proxies.
- ``answer`` reads answers.
- ``get`` is the plain GET without ``http.client``.
- ``websocket`` is a WebSocket, for tunnels.
"""

from weft_trainer.http.answer import Answer, Take
from weft_trainer.http.client import Http, Unreachable
from weft_trainer.http.websocket import Closed, WebSocket

__all__ = ["Answer", "Closed", "Http", "Take", "Unreachable", "WebSocket"]
