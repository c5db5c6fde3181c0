"""The code of jobs: bundles on the server, which jobs refer to by their SHA-256."""

from __future__ import annotations

from collections.abc import Iterator

from weft.bundle import Bundle
from weft.errors import NotFound
from weft.transport.http import Body, Transport, segment
from weft.transport.transfer import Progress, silent

_BLOCK = 1 << 18


def send(transport: Transport, bundle: Bundle, progress: Progress = silent) -> bool:
    """Upload a bundle unless the server has it; returns whether bytes were sent.

    Raises:
        InvalidBundle: the server refuses the zip.
    """
    path = f"/code/{segment(bundle.sha256)}"
    try:
        transport.request("HEAD", path)
    except NotFound:
        pass
    else:
        progress(bundle.size)
        return False
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        progress(-sent)
        sent = 0
        with bundle.path.open("rb") as file:
            while block := file.read(_BLOCK):
                sent += len(block)
                progress(len(block))
                yield block

    transport.request("PUT", path, body=Body(chunks, bundle.size, "application/zip"))
    return True
