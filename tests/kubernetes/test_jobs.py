"""Jobs in real pods, as a user drives them: only `engine: kubernetes` tells them from those of this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.stack import eventually, lines, saw
from tests.kubernetes.stack import ENGINE, RESUMES, TICKS, KubeStack, outcomes, processing, starts
from tests.wheels import make_wheel, private_index

import weft

_LOOK = """
id -u
touch /opt/weft/x 2>&1; touch /x 2>&1
ls /var/run/secrets 2>&1
grep -E '^(CapEff|NoNewPrivs):' /proc/self/status | tr '\\t' ' '
df --output=fstype /dev/shm | tail -1 | xargs echo shm
touch "$HOME/h" "$TMPDIR/t" "$RESULT_DIR/r" && echo writable
"""


@contextmanager
def begin(on_kube: KubeStack, folder: Path) -> Iterator[dict[str, weft.Job]]:
    """Those jobs of the tests below that end by themselves, which begin with the stack."""
    code, index = folder / "code", folder / "wheels"
    make_wheel(code / "wheels", "weft-beta", "2.5")
    show = "python -c \"import weft_beta; print('has', weft_beta.__version__)\""
    installs = f"pip install --quiet --no-index --no-deps wheels/*.whl && {show}"
    count = "python count.py 3 0"
    on_kube.cluster.image("weft.test/bare:1", "--python", "--env", "PYTHONPATH=/of/the/image")
    own = (
        "python3 -c 'import os, sys; print(*sys.version_info[:2], os.environ[\"PYTHONPATH\"])'; touch $RESULT_DIR/done"
    )
    wheels = [make_wheel(index, "weft-alpha", "1.2", ["weft-beta"]), make_wheel(index, "weft-beta", "2.5")]
    imports = "import weft_alpha as a, weft_beta as b; print(a.__version__, b.__version__, a.__file__)"
    with private_index(folder / "index", wheels, "team", "s3cret", on_kube.cluster.host_ip) as served:
        on_kube.stack.client.secrets.set("index-password", "team:s3cret")
        packages = {"packages": ["weft-alpha"], "index": {"url": served.url, "secret": "index-password"}}
        python = {"name": "python", "command": f'python -c "{imports}"', **packages}
        yield {
            "packages": on_kube.train("", framework=python, profile="spread", learners=2),
            "looks": on_kube.train(_LOOK),
            "own image": on_kube.train(
                "", framework={"name": "custom", "version": "weft.test/bare:1", "command": own}, learners=2
            ),
            "installs": on_kube.train(installs, code),
            "installs nothing": on_kube.train(show, code),
            "here": on_kube.train(count, learners=2, engine="local"),
            "there": on_kube.train(count, learners=2),
        }


@pytest.fixture(scope="module")
def begun(on_kube: KubeStack) -> Mapping[str, weft.Job]:
    """Jobs that run until their tests end them; these are begun together, too."""
    return {
        "halted": on_kube.train(RESUMES, learners=2, checkpoint={"every": "1h"}),
        "deleted": on_kube.train("sleep 600", learners=2),
        "ticks": on_kube.train(TICKS),
    }


def test_what_a_learner_may_do_in_its_pod(on_kube: KubeStack) -> None:
    job = on_kube.begun["looks"].wait(timeout=900)
    said = lines(job)
    assert said[0] == "10001"
    assert sum("Read-only file system" in line for line in said) == 2
    assert any("/var/run/secrets" in line and "No such file" in line for line in said)
    assert "CapEff: 0000000000000000" in said
    assert "NoNewPrivs: 1" in said
    assert "shm tmpfs" in said
    assert said[-1] == "writable"


def test_an_image_of_the_users_own_needs_nothing_but_python(on_kube: KubeStack) -> None:
    job = on_kube.begun["own image"].wait(timeout=900)
    [said] = lines(job, 1)
    assert said.startswith("3 11 ")
    assert ":/of/the/image:" in said
    assert [file.path for file in job.files() if "done" in file.path]


def test_packages_are_built_once_and_brought_to_all_nodes(on_kube: KubeStack) -> None:
    job = on_kube.begun["packages"].wait(timeout=900)
    for learner in (1, 2):
        [said] = lines(job, learner)
        assert said.startswith("1.2 2.5 ")
        assert "/overlays/" in said
    build = on_kube.stack.client.jobs.get(job.raw["packages"]["build"])
    assert (build.state, build.engine, build.learners) == ("COMPLETED", ENGINE, 1)


def test_what_a_command_installs_is_its_own(on_kube: KubeStack) -> None:
    first, second = (on_kube.begun[name].wait(timeout=900, check=False) for name in ("installs", "installs nothing"))
    assert (first.state, lines(first)[-1]) == ("COMPLETED", "has 2.5")
    assert second.state == "FAILED"
    assert "No module named 'weft_beta'" in " ".join(lines(second))


def test_the_same_manifest_runs_here_and_there(on_kube: KubeStack) -> None:
    for job in (on_kube.begun[name].wait(timeout=900) for name in ("here", "there")):
        assert lines(job, 1) == lines(job, 2) == ["line 0", "line 1", "line 2"]
        assert {"learner-1.txt", "learner-2.txt"} <= {file.path for file in job.files()}


def test_a_halt_is_sigterm_with_a_grace_and_resume_goes_on(on_kube: KubeStack, begun: Mapping[str, weft.Job]) -> None:
    job = begun["halted"]
    eventually(saw(job, "step 5"), "training under way")
    pods = on_kube.pods(job)
    job.halt(grace_seconds=60)
    job = job.wait(timeout=900, check=False)
    assert (job.state, job.reason) == ("HALTED", "halted by request")
    job.resume()
    job = job.wait(timeout=900)
    assert outcomes(job) == ["HALTED", "SUCCEEDED"]
    # The checkpoint of SIGTERM, as none was due before.
    assert starts(job)[0] == 0
    assert starts(job)[1] >= 5
    assert {pod["spec"]["terminationGracePeriodSeconds"] for pod in pods.values()} == {125}


def test_a_delete_leaves_nothing(on_kube: KubeStack, begun: Mapping[str, weft.Job]) -> None:
    job = begun["deleted"]
    processing(job)
    kinds = {item["kind"] for item in on_kube.objects(job, "pods,secrets,networkpolicies")}
    assert kinds == {"Pod", "Secret", "NetworkPolicy"}
    on_kube.trained.remove(job)
    job.delete()

    def is_gone() -> bool:
        try:
            job.refresh()
        except weft.errors.NotFound:
            return True
        return False

    eventually(is_gone, "deleted")
    left = [pod["metadata"]["name"] for pod in on_kube.objects(job) if not pod["metadata"].get("deletionTimestamp")]
    assert left == [], "its pods are on their way out"
    assert on_kube.objects(job, "secrets") == []


def test_engines_shows_the_cluster(on_kube: KubeStack) -> None:
    engine = on_kube.engine()
    assert engine.type == "kubernetes"
    assert {node.name for node in engine.nodes} == set(on_kube.cluster.nodes)
    assert engine.unreachable_since is None
    assert ENGINE in on_kube.stack.weft("engines").stdout


def test_logs_of_a_learner_come_while_it_runs(on_kube: KubeStack, begun: Mapping[str, weft.Job]) -> None:
    job = begun["ticks"]
    eventually(saw(job, "tick 3"), "the first lines")
    processing(job)
    # Meanwhile, people may go in: no right on the cluster and no port of the pod is needed.
    looked = on_kube.stack.weft("exec", job.id, "--", "sh", "-c", "id -u; echo there >&2; exit 5", check=False)
    assert (looked.returncode, looked.stdout, looked.stderr) == (5, "10001\n", "there\n")
    on_kube.tell(job)
    *ticks, last = lines(job.wait(timeout=900))
    assert ticks == [f"tick {number}" for number in range(len(ticks))]
    assert last == "told"
