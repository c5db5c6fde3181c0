"""Attacks things that are not the job's own, and prints the results: a line of JSON, with true for each success.

    attack.py HOME VICTIM_FOLDER SERVER_PID HOST_FILE

HOME is the home of the stack, VICTIM_FOLDER the folder of another job's learner, HOST_FILE a file in /var/tmp. In the
environment, VICTIM_PORT is a port of the other job, SERVICE_PORT one of a service of the machine, and MACHINE_ADDRESS
an address of the machine besides loopback.
"""

import ctypes
import json
import os
import signal
import socket
import sys
import tempfile
from pathlib import Path

import psutil

home, victim, server, host_file = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
machine = os.environ["MACHINE_ADDRESS"]
libc = ctypes.CDLL(None, use_errno=True)


def connects(path):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))


def hears(host, port):
    """Whether a server answers there without asking for credentials."""
    with socket.create_connection((host, port), 60) as connection:
        connection.settimeout(60)
        if not connection.recv(1):
            raise OSError


def writes(folder):
    with tempfile.NamedTemporaryFile(dir=folder):
        pass


def calls(name, *arguments):
    if getattr(libc, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), name)


def in_child(attack):
    """Runs an attempt that changes its own process in a child process."""
    if (pid := os.fork()) == 0:
        try:
            libc.unshare(0x20000)  # where that works, the mount stays in here
            attack()
        except OSError:
            os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        raise OSError


def finds(where):
    if not next(iter(where), None):
        raise FileNotFoundError


attacks = {
    "the server's keys": lambda: (home / "weft.toml").read_text(),
    "the server's keys by a relative path": lambda: Path(os.path.relpath(home), "weft.toml").read_text(),
    "an administrator's token": lambda: (home / "client.toml").read_text(),
    "the attempts' tokens": lambda: finds(home.glob("runs/*/spec.json")),
    "another job's files": lambda: (victim / "model" / "secret.txt").read_text(),
    "another job's folder": lambda: writes(victim),
    "another job's processes": lambda: finds(
        process for process in psutil.process_iter(["cmdline"]) if "victim.py" in (process.info["cmdline"] or ())
    ),
    "the server's process": lambda: os.kill(server, 0),
    "the server's memory": lambda: Path(f"/proc/{server}/mem").open("rb").close(),
    "Postgres": lambda: connects(next((home / "run").glob(".s.PGSQL.*"))),
    "Redis": lambda: connects(home / "run" / "redis.sock"),
    "another job's port": lambda: hears("127.0.0.1", int(os.environ["VICTIM_PORT"])),
    "another job's port at the machine's address": lambda: hears(machine, int(os.environ["VICTIM_PORT"])),
    "a service on loopback": lambda: hears("127.0.0.1", int(os.environ["SERVICE_PORT"])),
    "a service at the machine's address": lambda: hears(machine, int(os.environ["SERVICE_PORT"])),
    "the metadata of a cloud": lambda: hears("169.254.169.254", 80),
    "its agent's token": lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes(),
    "its agent's memory": lambda: Path(f"/proc/{os.getppid()}/mem").open("rb").close(),
    "the shared environment": lambda: writes(Path(psutil.__file__).parent),
    "the shared cache": lambda: finds((home / "cache").iterdir()),
    "a file in /var/tmp": host_file.read_text,
    "the users' passwords": lambda: Path("/etc/shadow").read_text(),
    "a setting of the kernel": lambda: Path("/proc/sys/vm/drop_caches").open("w").close(),
    "mounts": lambda: in_child(lambda: calls("mount", b"none", os.fsencode(os.getcwd()), b"tmpfs", 0, None)),
    "new namespaces": lambda: in_child(lambda: calls("unshare", 0x10000000)),
    "the keys of its user": lambda: calls("syscall", {"x86_64": 250, "aarch64": 219}[os.uname().machine], 0, -3, 1),
}
reached = {}
for name, attack in attacks.items():
    try:
        attack()
        reached[name] = True
    except (OSError, StopIteration, psutil.Error):
        reached[name] = False
print("reached", json.dumps(reached), flush=True)

# These must succeed, whatever else is forbidden.
with open("made-here", "w"):
    os.rename("made-here", os.path.abspath("renamed"))  # one file system, by relative and absolute paths
writes(os.getcwd())
writes("/tmp")
writes(os.environ["RESULT_DIR"])
writes("/dev/shm")
os.openpty()
socket.create_connection(("127.0.0.1", int(os.environ["API_PORT"]))).close()
signal.raise_signal(signal.SIGCONT)
print("own", json.dumps(sorted(p.pid for p in psutil.process_iter())), flush=True)
