"""Learners as other users than the worker, as in the worker's container, where no sandbox can be made."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from tests.e2e.stack import REPOSITORY
from tests.workers.engines.bench import FOREVER, Bench, until

from weft_core.engine import LaunchRefused
from weft_workers.engines.local import isolation, users

pytestmark = pytest.mark.slow

_SYSTEM = Path("/usr/bin/python3")
_FIRST, _LAST = 20_000, 20_001
_FACTS = """
import json, os
def reads(path):
    try:
        open(path, "rb").read(1)
        return True
    except OSError:
        return False
def writes(folder):
    try:
        open(f"{folder}/written", "w").close()
        return True
    except OSError:
        return False
def lists(folder):
    try:
        os.listdir(folder)
        return True
    except OSError:
        return False
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
facts = {
    "user": [os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.getgroups()],
    "rights": [status[name].strip() for name in ("CapEff", "CapPrm", "CapInh", "CapAmb", "NoNewPrivs")],
    "environment": sorted(os.environ),
}
"""

# A worker's part of a run, with the engine's settings: a learner ends by itself, and another one is stopped.
_AS_COMPOSED = """
import json, sys
from datetime import timedelta
from pathlib import Path
from dataclasses import replace
from tests.workers.engines.bench import FOREVER, Bench, until

class There(Bench):
    def __init__(self, folder):
        (folder / "there").mkdir(mode=0o711)
        super().__init__(folder / "there")

bench = There(Path(sys.argv[1]))
bench.out.chmod(0o777)
bench.engine = bench.new_engine(**json.loads(sys.argv[2]) | {"isolation": "auto"})
facts = '''
import json, os
rights = [line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff:")]
open(f"{OUT}/facts", "w").write(json.dumps([os.getuid(), len(os.getgroups()), *rights]))
'''
first = bench.spec(facts, image="/usr")
bench.engine.launch(first)
[learner] = bench.ended(first).values()
assert learner.exit_code == 0, bench.run(first).agent_log(0).read_text()
second = bench.spec(FOREVER, job="b", image="/usr")
bench.engine.launch(second)
bench.agent_of(second)
for spec in (first, second):
    bench.engine.stop(spec.run_name, timedelta(0))
    until(lambda: not bench.run(spec).path.exists())
until(lambda: not bench.processes())
print(json.dumps({
    "exposed": bench.engine.capacity().exposed,
    "learner": json.loads((bench.out / "facts").read_text()),
    "left": [path.name for path in (bench.home / "runs").iterdir() if not path.name.startswith(".")],
}))
"""


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    if trouble := users.obstacle():
        pytest.skip(f"NOT RUN: {trouble}")
    enough = [str(_SYSTEM), "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
    if not _SYSTEM.exists() or subprocess.run(enough, check=False).returncode:
        pytest.skip("NOT RUN: there is no Python 3.11 or later here that all users can run")
    monkeypatch.setattr(isolation, "obstacle", lambda: "new namespaces: Operation not permitted")
    folder = Path(tempfile.mkdtemp(prefix="weft-users-", dir="/tmp"))  # one that all users may pass
    folder.chmod(0o711)
    bench = Bench(folder)
    bench.out.chmod(0o777)
    bench.engine = bench.new_engine(isolation="auto", users=(_FIRST, _LAST))
    yield bench
    bench.close()
    shutil.rmtree(folder)


def spec(bench: Bench, script: str, project: str = "prj-1", job: str = "a") -> Any:
    return replace(bench.spec(script, job=job, image="/usr"), project_id=project)


def test_a_learner_is_another_user_without_rights_and_sees_nothing_of_the_worker(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_SECRET_KEYS", "the-keys")  # in this process, which is the engine's
    worker = subprocess.Popen(["sleep", "600"], env={"WEFT_SECRET_KEYS": "the-keys"})
    victim = spec(bench, FOREVER, "prj-2", "victim")
    bench.engine.launch(victim)
    bench.agent_of(victim)
    script = f"""{_FACTS}
home, work = {str(bench.home)!r}, os.environ["WEFT_WORKDIR"]
victim = {str(bench.run(victim).path)!r}
facts["reached"] = [name for name, reached in {{
    "the worker's environment": reads("/proc/{worker.pid}/environ"),
    "the worker's memory": reads("/proc/{worker.pid}/mem"),
    "its own run's spec": reads(os.path.dirname(work) + "/spec.json"),
    "another run's spec": reads(victim + "/spec.json"),
    "another learner's folder": lists(victim + "/learner-0"),
    "another project's cache": lists(home + "/cache/prj-2"),
    "the list of runs": lists(home + "/runs"),
    "another environment's code": writes(os.path.dirname(os.__file__)),
}}.items() if reached]
own = [work, os.environ["WEFT_SHARED_DIR"], os.environ["WEFT_CACHE_DIR"], "/tmp"]
facts["can"] = [writes(folder) for folder in own]
open(f"{{OUT}}/facts", "w").write(json.dumps(facts))
"""
    mine = spec(bench, script)
    try:
        bench.engine.launch(mine)
        [learner] = bench.ended(mine).values()
    finally:
        worker.kill()
        worker.wait()
        Path("/tmp/written").unlink(missing_ok=True)
    log = bench.run(mine).agent_log(0).read_text()
    assert learner.exit_code == 0, log
    facts = json.loads((bench.out / "facts").read_text())
    assert facts["user"] == [_LAST, _LAST, _LAST, _LAST, []], "the first user belongs to the other project"
    assert facts["rights"] == [*["0" * 16] * 4, "1"]
    assert facts["reached"] == []
    assert facts["can"] == [True] * 4
    assert "WEFT_SECRET_KEYS" not in facts["environment"]


def test_a_project_keeps_its_user_and_all_that_is_in_its_cache(bench: Bench) -> None:
    cache = bench.home / "cache" / "prj-1"
    (cache / "older").mkdir(parents=True)
    (cache / "older" / "file").write_text("from when learners were the worker")
    script = f"{_FACTS}\nopen(os.environ['WEFT_CACHE_DIR'] + '/older/file', 'a').close()\n"
    for number in range(2):
        mine = spec(bench, script, job=str(number))
        bench.engine.launch(mine)
        [learner] = bench.ended(mine).values()
        assert learner.exit_code == 0, bench.run(mine).agent_log(0).read_text()
        assert {path.stat().st_uid for path in (cache, *cache.rglob("*"))} == {_FIRST}
    bench.engine.launch(spec(bench, "", "prj-2", "second"))
    with pytest.raises(LaunchRefused, match="all users from 20000 to 20001 have a project"):
        bench.engine.launch(spec(bench, "", "prj-3", "third"))


def test_the_supervisors_stop_and_remove_what_another_user_runs(bench: Bench) -> None:
    mine = spec(bench, f"open('read-only', 'w').close()\nimport os\nos.mkdir('d', 0o500)\n{FOREVER}")
    bench.engine.launch(mine)
    agent = bench.agent_of(mine)
    # Not the owner of its files in /proc, which is root once it hides its memory.
    until(lambda: psutil.Process(agent.pid).uids().real == _FIRST)
    bench.engine.stop(mine.run_name, timedelta(0))
    until(lambda: not bench.run(mine).path.exists())


def test_people_hear_what_is_in_force_and_a_worker_without_the_rights_refuses(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = bench.engine.capacity().exposed
    assert said.startswith("this machine does not allow it: new namespaces: Operation not permitted; ")
    assert said.endswith("; learners of different projects are different users")
    monkeypatch.setattr(users, "obstacle", lambda: "the worker lacks the rights SETUID of root")
    assert bench.engine.capacity().exposed == "this machine does not allow it: new namespaces: Operation not permitted"
    with pytest.raises(LaunchRefused, match="setting 'users', but the worker lacks the rights SETUID of root"):
        bench.engine.launch(spec(bench, "", job="refused"))


def test_an_ordinary_user_lacks_the_rights() -> None:
    code = "from weft_workers.engines.local import users; print(users.obstacle())"
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    said = subprocess.run([*drop, sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said.strip() == "the worker lacks the rights CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID of root"


def test_the_composed_worker_can_do_it_with_the_rights_and_the_setting_that_it_has(bench: Bench) -> None:
    """As in its container: with these rights and no others, and without namespaces."""
    worker = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]["worker"]
    assert (worker["user"], worker["cap_drop"], worker["security_opt"]) == ("0:0", ["ALL"], ["no-new-privileges:true"])
    [engine] = json.loads(worker["environment"]["WEFT_ENGINES"]).values()
    rights = ",".join(["-all", *(f"+{name.lower()}" for name in worker["cap_add"])])
    ended = subprocess.run(
        [
            *("setpriv", "--no-new-privs", f"--bounding-set={rights}", f"--inh-caps={rights}"),
            *(sys.executable, REPOSITORY / "tests/embedded/forbid_namespaces.py", sys.executable, "-c", _AS_COMPOSED),
            *(str(bench.folder), json.dumps(engine)),
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert said["exposed"].endswith("Operation not permitted; learners of different projects are different users")
    assert said["learner"] == [20_000, 0, "0" * 16]
    assert said["left"] == []
