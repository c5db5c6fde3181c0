"""The home: the one folder that holds all of an embedded installation (default ``~/.weft``).

version         number of this layout
weft.toml       settings of the services, with the generated keys (private)
client.toml     a CLI profile for this installation (private)
host            where API and S3 listen, once `weft up --host` has set it port            the API's port, kept because
learners that outlive the service come back to it postgres/ s3/   the servers' data run/            lock, pid files,
state; gone without harm when nothing runs logs/           output of each part …               the local engine's own
folders (runs, caches)
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from weft_embedded.processes import ProcessId

LAYOUT = 1
DISK_NEEDED = 1 << 30
_SOCKET_PATH_LIMIT = 107  # of the kernel, for the whole path
_LONGEST_SOCKET = "/.s.PGSQL.5432"


class EmbeddedError(Exception):
    """Why a command can't do its work; for the user as it is."""


class HomeError(EmbeddedError):
    """Why ``weft up`` can't use this home."""


class AlreadyRunning(HomeError):
    """Another ``weft up`` holds this home."""


@dataclass
class PartState:
    """The state of a part of the stack; ``state`` is a word for people."""

    name: str
    state: str = "waiting"
    pid: int | None = None
    restarts: int = 0
    note: str = ""
    log: str = ""


@dataclass
class State:
    """The last report of the supervisor, which ``status``, ``down`` and ``--detach`` read."""

    supervisor: ProcessId | None = None
    url: str = ""
    open: str = ""  # the parts that other machines reach, for people
    exposed: str = ""  # engines that do not keep jobs apart, for people
    ready: bool = False
    error: str = ""
    doing: str = ""  # the work that takes a while just now, for people
    parts: list[PartState] = field(default_factory=list)


class Home:
    """The folder and its paths."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().resolve()
        self.config = self.path / "weft.toml"
        self.client_profile = self.path / "client.toml"
        self.run = self.path / "run"
        self.logs = self.path / "logs"
        self.postgres = self.path / "postgres"
        self.redis = self.run / "redis"
        self.s3 = self.path / "s3"
        self.sockets = self._socket_folder()
        self._version = self.path / "version"
        self._port = self.path / "port"
        self._host = self.path / "host"
        self._lock = self.run / "lock"
        self._state = self.run / "state.json"
        self._grace = self.run / "grace"

    # --- making and checking it ---

    def exists(self) -> bool:
        return self._version.exists()

    def open(self, check_room: bool = True) -> None:
        """Create it or check it.

        Raises:
            HomeError: another layout, someone else's, no room on its disk, not writable.
        """
        try:
            if self.path.exists() and not self.path.is_dir():
                raise HomeError(f"{self.path} is a file: the home must be a folder (--home DIR or WEFT_HOME)")
            found = self._found_layout()
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if check_room:
                self.check_room()
            if found is None:
                self._version.write_text(f"{LAYOUT}\n")
            for folder in (self.path, self.run, self.logs, self.sockets):
                folder.mkdir(mode=0o700, exist_ok=True)
                if folder.stat().st_uid != os.geteuid():
                    raise HomeError(f"{folder} belongs to another user (uid {folder.stat().st_uid})")
                if stat.S_IMODE(folder.stat().st_mode) & 0o077:
                    folder.chmod(0o700)
        except OSError as error:
            raise HomeError(f"can't use {self.path} as home: {error.strerror} ({error.filename})") from error

    def _found_layout(self) -> int | None:
        """The layout of the home; None when it is to be made.

        Raises:
            HomeError: a layout that this version can't serve, or a folder that is no home.
        """
        try:
            text = self._version.read_text().strip()
        except FileNotFoundError:
            strangers = sorted(p.name for p in self.path.iterdir()) if self.path.exists() else []
            # An upset first start may have made the folder and no more.
            if set(strangers) - {"run", "logs"}:
                raise HomeError(
                    f"{self.path} is no home of Weft: it has no file 'version' but holds "
                    f"{', '.join(strangers[:3])}{', …' if len(strangers) > 3 else ''}. Give an empty or new folder."
                ) from None
            return None
        if not text.isdecimal():
            raise HomeError(f"{self._version} holds {text!r}, expected a number such as {LAYOUT}")
        if int(text) > LAYOUT:
            raise HomeError(
                f"{self.path} was made by a newer Weft (layout {text}, this one knows up to {LAYOUT}): "
                "upgrade Weft, or give another home by --home"
            )
        if int(text) < LAYOUT:
            raise HomeError(
                f"{self.path} is of an older layout ({text}, this Weft needs {LAYOUT}) that can't be migrated: "
                "give another home by --home"
            )
        return int(text)

    def free_bytes(self) -> int:
        """Room on its disk."""
        return shutil.disk_usage(self.path).free

    def check_room(self) -> None:
        """Raises HomeError when the disk is too full to begin."""
        free = self.free_bytes()
        if free < DISK_NEEDED:
            raise HomeError(
                f"the disk of {self.path} is full: {free >> 20} MiB free, Weft needs {DISK_NEEDED >> 20} MiB to start"
            )

    def _socket_folder(self) -> Path:
        """``run``, or a short folder of its own elsewhere, as the path of a socket is limited to 107 bytes.

        For PostgreSQL's clients, a comma in it ends the name of a host.
        """
        run = os.fsencode(self.run)
        if len(run) + len(_LONGEST_SOCKET) <= _SOCKET_PATH_LIMIT and b"," not in run:
            return self.run
        digest = hashlib.sha256(str(self.path).encode()).hexdigest()[:12]
        base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
        return Path(base) / f"weft-{os.geteuid()}-{digest}"

    # --- its address and port ---

    def load_port(self) -> int | None:
        try:
            return int(self._port.read_text())
        except (OSError, ValueError):
            return None

    def save_port(self, port: int) -> None:
        self._port.write_text(f"{port}\n")

    def load_host(self) -> str | None:
        try:
            return self._host.read_text().strip() or None
        except OSError:
            return None

    def save_host(self, host: str) -> None:
        self._host.write_text(f"{host}\n")

    # --- the grace of its end: `weft down` tells the supervisor ---

    def leave_grace(self, seconds: float) -> None:
        self._grace.write_text(str(seconds))

    def take_grace(self) -> float | None:
        try:
            return float(self._grace.read_text())
        except (OSError, ValueError):
            return None

    # --- who runs it ---

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold this home alone; the kernel lets go when the process dies.

        Raises:
            AlreadyRunning: someone else holds it.
        """
        with self._lock.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AlreadyRunning(self.who()) from None
            yield

    def locked(self) -> bool:
        """Whether a supervisor holds this home."""
        try:
            with self._lock.open("r") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False

    def who(self) -> str:
        """The process that holds the home, in words for people."""
        state = self.load_state()
        pid = state.supervisor.pid if state.supervisor else "unknown"
        return f"already running on {self.path}: pid {pid}, {state.url or 'still starting'} (`weft down` ends it)"

    def save_state(self, state: State) -> None:
        """Raises OSError, for example on a full disk."""
        temporary = self._state.with_suffix(".new")
        temporary.write_text(json.dumps(asdict(state), indent=1))
        temporary.replace(self._state)

    def forget_state(self) -> None:
        self._state.unlink(missing_ok=True)
        self._grace.unlink(missing_ok=True)

    def load_state(self) -> State:
        """The last supervisor's report; an empty report if there is none."""
        try:
            raw = json.loads(self._state.read_text())
            supervisor = ProcessId(**raw["supervisor"]) if raw["supervisor"] else None
            parts = [PartState(**part) for part in raw["parts"]]
            return State(**{**raw, "supervisor": supervisor, "parts": parts})
        except (OSError, ValueError, KeyError, TypeError):
            return State()
