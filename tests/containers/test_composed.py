"""docker-compose.yml, as a newcomer uses it: up, sign in, train, down and up again, an upgrade, restarts."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.containers.composed import ONE_SHOTS, SERVERS, Composed, digits
from tests.containers.engine import REPOSITORY, Engine, EngineError
from tests.containers.test_service_images import copy_of_the_context

import weft

EXAMPLE = REPOSITORY / "examples" / "mnist-horovod-pytorch" / "manifest.yml"
# Continues counting from its checkpoint, as a training does, for a minute and a half in all.
COUNTING = """
import os, pathlib, time
kept = pathlib.Path(os.environ["CHECKPOINT_DIR"], "count")
count = int(kept.read_text()) if kept.exists() else 0
print("begin at", count, flush=True)
while count < 90:
    count += 1
    draft = kept.with_name(".count")
    draft.write_text(str(count))
    draft.rename(kept)
    print("count", count, flush=True)
    time.sleep(1)
pathlib.Path(os.environ["RESULT_DIR"], "total").write_text(str(count))
"""
# Looks for things that the worker has and a job must not have.
LOOKING = """
import glob, json, os
def reads(path):
    try:
        return open(path, "rb").read()
    except OSError:
        return b""
def lists(folder):
    try:
        return bool(os.listdir(folder))
    except OSError:
        return False
others = [f"/proc/{pid}/environ" for pid in os.listdir("/proc") if pid.isdecimal()]
print("found", json.dumps({
    "user": os.getuid(),
    "rights": next(line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff:")),
    "environments": [path for path in others if b"WEFT_SECRET_KEYS" in reads(path)],
    "specs": [path for path in glob.glob(os.environ["HOME"] + "/../spec.json") if reads(path)],
    "runs": lists("/var/lib/weft/runs"),
    "own secrets": [name for name in os.environ if name in ("WEFT_SECRET_KEYS", "WEFT_DATABASE_URL", "WEFT_REDIS_URL")],
}), flush=True)
"""
NEW_MIGRATION = '''"""A column of a version to come."""

import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{head}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("of_the_next_version", sa.Text()))


def downgrade() -> None:
    op.drop_column("jobs", "of_the_next_version")
'''


@pytest.fixture(scope="module")
def up(composed: Composed, engine: Engine) -> Composed:
    """Up, and signed in."""
    engine.found("compose up, first time, until healthy", f"{composed.up():.0f} s")
    composed.weft("login", "--token", composed.url, stdin=composed.token())
    composed.weft("data", "create", "default:counted")
    return composed


def counting(client: weft.Client, folder: Path, **changes: Any) -> weft.Job:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "count.py").write_text(COUNTING)
    manifest = {
        "name": "counting",
        "cpus": 0.25,
        "memory": "256 MiB",
        "framework": {"name": "python", "version": "3.11", "command": "python count.py"},
        "data_stores": [{"id": "s3", "datastore": "default", "training_results": {"container": "counted"}}],
        "checkpoint": {"every": "2s"},
    }
    return client.train(manifest | changes, folder)


def eventually(condition: Callable[[], Any], what: str, seconds: float = 1200) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if value := condition():
                return value
            why = ""
        except weft.WeftError as error:
            why = f": {error}"
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s{why}"
        time.sleep(1)


def finished(client: weft.Client, job: weft.Job, seconds: float = 1800) -> weft.Job:
    """The job after its end, whatever happens to the API meanwhile."""

    def ended() -> weft.Job | None:
        found = client.job(job.id)
        return found if found.is_terminal else None

    found: weft.Job = eventually(ended, f"the end of {job.id}", seconds)
    assert found.state == "COMPLETED", [event.message for event in found.events()]
    return found


def log(job: weft.Job) -> list[str]:
    return [line.text for line in job.logs()]


def test_up_becomes_healthy(up: Composed) -> None:
    for name in SERVERS:
        assert up.health(name) == "healthy", name
    for name in ONE_SHOTS:
        state = up.container(name)["State"]
        assert (state["Status"], state["ExitCode"]) == ("exited", 0), name
    encoding = up.execute("postgres", "psql", "--username=weft", "--tuples-only", "--command=show server_encoding")
    assert encoding.strip() == "UTF8"


def test_health_checks_notice(up: Composed) -> None:
    """The scripts themselves, in their containers, while the servers that they check are down."""
    assert json.loads(up.execute("api", "api-healthy"))["status"] == "ready"
    up.execute("worker", "worker-healthy")
    up.compose("stop", "postgres")
    try:
        # The first, unless the engine's name server takes longer to say that there is no such host.
        with pytest.raises(EngineError, match=r"postgres|the API does not answer"):
            up.execute("api", "api-healthy")
        with pytest.raises(EngineError, match="the database does not answer"):
            up.execute("worker", "worker-healthy")
    finally:
        up.compose("start", "postgres")
    for name in ("postgres", "api", "worker"):
        up.wait_healthy(name)


def test_the_data_store_is_there_and_closed_to_the_installations_bucket(up: Composed, tmp_path: Path) -> None:
    (store,) = [listed for listed in json.loads(up.weft("datastores", "list", "--json")) if listed["name"] == "default"]
    assert store["endpoint"] == f"http://{up.host}:{up.store_port}"
    (tmp_path / "file").write_text("ours")
    up.weft("data", "put", str(tmp_path / "file"), "default:mine")
    assert "file" in up.weft("data", "ls", "default:mine")
    with pytest.raises(EngineError, match=r"(?i)denied|refuse"):
        up.weft("data", "ls", "default:weft")


def test_the_example_on_two_learners(up: Composed, engine: Engine, tmp_path: Path) -> None:
    """The README's commands; the first job makes the environment in the worker's volume, compiling Horovod."""
    up.weft("data", "put", str(digits(tmp_path / "mnist")), "default:mnist-data")
    up.weft("data", "create", "default:mnist-models")
    started = time.monotonic()
    said = up.weft("train", str(EXAMPLE), "--follow")
    engine.found("two-learner Horovod example, with its environment", f"{time.monotonic() - started:.0f} s")
    assert [job.state for job in up.client().jobs.list()] == ["COMPLETED"]
    assert "[1] rank 0 of 2" in said
    assert "[2] rank 1 of 2" in said
    (accuracy,) = [float(share) for share in re.findall(r"test accuracy ([\d.]+)", said)]
    assert accuracy > 0.9
    up.weft("download", "@last", "--trainedmodel", "--unpack", "-o", str(tmp_path / "model"))
    assert [path for path in (tmp_path / "model").rglob("*") if path.is_file()]


def test_a_job_sees_neither_the_workers_environment_nor_its_files(up: Composed, tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text(LOOKING)
    manifest = {
        "name": "looking",
        "cpus": 0.25,
        "memory": "256 MiB",
        "framework": {"name": "python", "version": "3.11", "command": "python look.py"},
    }
    client = up.client()
    job = finished(client, client.train(manifest, tmp_path))
    [found] = [json.loads(line.removeprefix("found ")) for line in log(job) if line.startswith("found ")]
    assert 20_000 <= found.pop("user") < 30_000
    assert found == {"rights": "0" * 16, "environments": [], "specs": [], "runs": False, "own secrets": []}


def test_stacks_of_learners_are_read_by_py_spy(up: Composed) -> None:
    """The worker's image brings it. Whether the kernel permits it depends on the machine; if not, a message says so."""
    assert up.execute("worker", "py-spy", "--version").startswith("py-spy ")
    brought = up.execute("worker", "sh", "-c", "ls /var/lib/weft/environments/runtime-*/weft_trainer/bin/py-spy")
    assert brought.strip().endswith("py-spy")


def test_down_and_up_keeps_everything(up: Composed, engine: Engine, tmp_path: Path) -> None:
    client = up.client()
    (job,) = [listed for listed in client.jobs.list() if listed.name == "mnist-horovod-pytorch"]
    before = (job.state, log(job), [(file.path, file.size) for file in job.files()])
    assert before[0] == "COMPLETED"
    up.down()
    engine.found("compose up, again, until healthy", f"{up.up():.0f} s")
    job = client.job(job.id)
    assert (job.state, log(job), [(file.path, file.size) for file in job.files()]) == before
    assert "train" in up.weft("data", "ls", "default:mnist-data")
    up.weft("download", job.id, "--trainedmodel", "--unpack", "-o", str(tmp_path / "model"))
    # The environments are there, too: this time nothing is compiled.
    started = time.monotonic()
    up.weft("train", str(EXAMPLE), "--follow")
    assert {job.state for job in client.jobs.list()} == {"COMPLETED"}
    engine.found("two-learner Horovod example, environment there", f"{time.monotonic() - started:.0f} s")


@pytest.fixture(scope="module")
def next_version(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Images of a later Weft, with one more migration."""
    context = copy_of_the_context(tmp_path_factory.mktemp("next") / "context")
    versions = context / "migrations" / "versions"
    revisions = [re.findall(r'^(?:down_)?revision = "(\w+)"', path.read_text(), re.M) for path in versions.glob("*.py")]
    replaced = {down for _, *downs in revisions for down in downs}
    (head,) = {revision for revision, *_ in revisions} - replaced
    (versions / "9999_next.py").write_text(NEW_MIGRATION.format(head=head))
    for name in ("api", "worker"):
        engine.build(f"deploy/docker/{name}.Dockerfile", f"weft/{name}:test-next", context)
    return "weft/api:test-next", "weft/worker:test-next"


def test_an_upgrade_with_a_migration_while_a_job_runs(
    up: Composed, next_version: tuple[str, str], engine: Engine, tmp_path: Path
) -> None:
    client = up.client()
    job = counting(client, tmp_path / "code")
    eventually(lambda: any(line.startswith("count") for line in log(client.job(job.id))), "the job's counting")
    eventually(lambda: client.job(job.id).checkpoints(), "a checkpoint")
    up.use(*next_version)
    engine.found("compose up to a newer image, until healthy", f"{up.up():.0f} s")
    column = "select count(*) from information_schema.columns where column_name = 'of_the_next_version'"
    said = up.execute("postgres", "psql", "--username=weft", "--tuples-only", f"--command={column}")
    assert said.strip() == "1"
    for name in ("api", "worker"):
        assert "-next" in up.container(name)["Config"]["Image"] or (
            up.container(name)["Image"].removeprefix("sha256:")
            == engine.image(f"weft/{name}:test-next")["Id"].removeprefix("sha256:")
        )
    lines = log(finished(client, job))
    # Learners of the engine `local` end with the worker's container: the job went on from its checkpoint.
    begins = [int(line.split()[-1]) for line in lines if line.startswith("begin at")]
    assert begins[0] == 0
    assert len(begins) > 1, "the job was not disturbed"
    assert begins[-1] > 0, "it began from the beginning"
    assert lines[-1] == "count 90"


def test_each_container_is_restarted_while_a_job_runs(up: Composed, tmp_path: Path) -> None:
    client = up.client()
    job = counting(client, tmp_path / "code")
    eventually(lambda: any(line.startswith("count") for line in log(client.job(job.id))), "the job's counting")
    for name in SERVERS:
        up.restart(name)
        for other in SERVERS:
            up.wait_healthy(other)
        eventually(lambda: client.job(job.id), f"an answer of the API after {name}'s restart")
    lines = log(finished(client, job))
    counted = [int(line.split()[1]) for line in lines if line.startswith("count ")]
    assert counted[-1] == 90
    assert set(counted) == set(range(1, 91)), "lines of the log are missing"
    # And the next job.
    finished(client, counting(client, tmp_path / "next", name="after"))
