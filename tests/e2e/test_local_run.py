"""`weft run`: a manifest on this machine without any server, as a user types it; then the same one sent away."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import boto3
import mlflow
import pytest
import yaml
from tests.e2e.desk import Desk
from tests.e2e.stack import REPOSITORY, Stack, alive, embedded_s3, series
from tests.environments import python_with
from tests.wheels import make_wheel

EXAMPLES = REPOSITORY / "examples"


def test_large_results_and_checkpoints_come_in_parts(desk: Desk) -> None:
    (desk.code / "large.py").write_text(
        "import hashlib, os, random\n"
        "for variable in ('RESULT_DIR', 'CHECKPOINT_DIR'):\n"
        "    data = random.Random(variable).randbytes(20_000_001)\n"
        "    open(os.path.join(os.environ[variable], 'large.bin'), 'wb').write(data)\n"
        "    print(variable, hashlib.sha256(data).hexdigest())\n"
    )
    done = desk.run(desk.manifest("python large.py"), desk.code)
    said = dict(line.split() for line in done.stdout.splitlines() if line.startswith(("RESULT", "CHECKPOINT")))
    out = desk.folder / "weft-run/desk-job"
    for variable, folder in (("RESULT_DIR", "results"), ("CHECKPOINT_DIR", "checkpoints")):
        found = {hashlib.sha256(path.read_bytes()).hexdigest() for path in (out / folder).rglob("*") if path.is_file()}
        assert said[variable] in found
    assert not (out / ".incoming").exists()


def test_packages_are_built_by_a_run_of_their_own_and_kept(desk: Desk) -> None:
    make_wheel(desk.code / "wheels", "weft-alpha", "1.2")
    (desk.code / "requirements.txt").write_text("weft-alpha>=1\n")
    command = "python -c 'import weft_alpha; print(weft_alpha.__version__)'"
    asked = {"name": "python", "command": command, "requirements": "requirements.txt", "wheels": "wheels/*.whl"}
    manifest = desk.manifest("", framework=asked, learners=2)
    first = desk.run(manifest, desk.code)
    assert sorted(first.stdout.splitlines()) == ["[1] 1.2", "[2] 1.2"]
    assert "packages: Installed 1 package" in first.stderr
    second = desk.run(manifest, desk.code)
    assert "Installed" not in second.stderr
    assert "packages: 1 package besides the image's" in second.stderr
    (desk.code / "requirements.txt").write_text("# our own\nweft-alpha>=7\n")
    failed = desk.run(manifest, desk.code, code=1)
    assert "requirements.txt line 2: weft-alpha>=7" in " ".join(failed.stderr.split())


@pytest.mark.parametrize("version", [mlflow.__version__, "2.16.2"])
def test_what_a_program_logs_with_mlflow_is_the_runs(desk: Desk, version: str) -> None:
    python = python_with(f"mlflow-skinny=={version}")
    done = desk.run(desk.manifest(f"{python} log_to_mlflow.py", learners=2), desk.code)
    assert {f"[{learner}] logged with MLflow {version}" for learner in (1, 2)} <= set(done.stdout.splitlines())
    out = desk.folder / "weft-run/desk-job"
    points: dict[tuple[str, str], list[tuple[int, float]]] = {}
    with (out / "metrics.csv").open() as file:
        for row in csv.DictReader(file):
            points.setdefault((row["name"], row["learner"]), []).append((int(row["step"]), float(row["value"])))
    for learner in ("1", "2"):
        assert points["train/loss", learner] == [(step, 1 / (step + 1)) for step in range(5)]
        assert points["acc", learner] == [(step, step / 10) for step in range(5)]
        assert points["fold/acc", learner] == [(0, 0.5)]
    assert len(points) == 6
    shown = " ".join(done.stderr.split())
    assert "PARAMETER VALUE layers [3, 5] lr 0.1" in shown, done.stderr
    assert (out / "results/texts/notes.txt").read_text() == "some notes"
    # It is MLflow's own store: its client reads it.
    reads = "import mlflow; print(*mlflow.search_runs(search_all_experiments=True, output_format='list'))"
    env = {"MLFLOW_TRACKING_URI": (out / "mlflow/learner-1").as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true"}
    found = subprocess.run([python, "-c", reads], env=env, capture_output=True, text=True, check=True).stdout
    assert ("baseline" in found, "fold" in found) == (True, True)

    # Another server that the manifest names gets what its program logs.
    names = "sorted(name for name in __import__('os').environ if name.startswith('MLFLOW'))"
    own = desk.manifest(f'python -c "print({names})"', env={"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"})
    assert desk.run(own, desk.code).stdout.strip() == "['MLFLOW_DISABLE_TELEMETRY', 'MLFLOW_TRACKING_URI']"
    assert not (desk.folder / "weft-run/desk-job-2/mlflow").exists()


def test_folders_take_the_place_of_s3(desk: Desk) -> None:
    data = desk.folder / "my data/deep"
    data.mkdir(parents=True)
    (data / "a.bin").write_bytes(b"a" * 1000)
    stores = [
        {"id": "s3", "datastore": "kept", "training_data": {"container": "c"}, "training_results": {"container": "r"}}
    ]
    manifest = desk.manifest(
        "python place.py && cp $DATA_DIR/deep/a.bin $RESULT_DIR/$LEARNER_ID.bin",
        learners=2,
        engine="kubernetes",
        profile="v100x2",
        data_stores=stores,
        env={"GREETING": "hello"},
        secrets={"API_KEY": "api-key"},
    )
    text = yaml.safe_load(manifest.read_text())
    del text["cpus"], text["memory"]  # a profile says that
    manifest.write_text(yaml.safe_dump(text))
    done = desk.run(
        manifest, "--data", data.parent, "--results", "out", "--secret", "api-key", env={"API_KEY": "s3cr3t"}
    )
    for learner in (1, 2):
        [line] = [candidate for candidate in done.stdout.splitlines() if candidate.startswith(f"[{learner}] FOUND")]
        found = json.loads(line.partition("FOUND ")[2])
        assert found.pop("data") == ["deep", "deep/a.bin"]
        assert found.pop("leaks") == []
        values = found.pop("values")
        assert values.pop("TRAINING_ID").startswith("run-")
        assert values == {
            "LEARNER_ID": str(learner),
            "NUM_LEARNERS": "2",
            "GPU_COUNT": "0",
            "GREETING": "hello",
            "API_KEY": "***",
            "API_KEY backwards": "t3rc3s",
        }
        assert all(found.values()), found
        assert (desk.folder / f"out/{learner}.bin").read_bytes() == b"a" * 1000
    assert "profile 'v100x2' is a server's" in done.stderr
    assert re.search(r"^results: +out$", done.stderr, re.MULTILINE), done.stderr
    desk.nothing_is_left()


def test_a_script_needs_no_manifest(desk: Desk) -> None:
    script = desk.folder / "project" / "fit.py"
    script.parent.mkdir()
    script.write_text(
        "import sys, weft\n"
        "@weft.job(learners=7)\n"
        "def fit(*words): print('fit', *words, flush=True)\n"
        "if __name__ == '__main__': fit(*sys.argv[1:])\n"
    )
    options = ["--learners", "2", "--cpus", "0.5", "--memory", "512MiB"]
    done = desk.run("project/fit.py", *options, "--", "--lr", "0.1", "a b")
    assert sorted(done.stdout.splitlines()) == ["[1] fit --lr 0.1 a b", "[2] fit --lr 0.1 a b"]
    assert f"weft train --follow project/fit.py {' '.join(options)} -- --lr 0.1 'a b'" in done.stderr
    called = "python -m weft_trainer.function fit:fit '{}' '[7]'"
    done = desk.run("project/fit.py", "--set", f"framework.command={called}")
    assert done.stdout.splitlines() == ["fit 7"], "the learner has no package weft, and the function needs none"


def test_a_folder_is_shared_and_streamed_as_s3_is(desk: Desk) -> None:
    images = desk.folder / "images"
    images.mkdir()
    for name in ("a.tar", "b.tar", "note.txt"):
        (images / name).write_text(name * 2)
    program = (
        "from weft_trainer.data import Stream; print([(item.key, item.open().read()) for item in Stream('images')])"
    )
    how = {"container": "c", "mode": "stream", "shard": "learner", "include": ["*.tar"]}
    store = {"id": "images", "datastore": "kept", "training_data": how}
    manifest = desk.manifest(f'python -c "{program}"', learners=2, data_stores=[store])
    done = desk.run(manifest, "--data", images)
    assert sorted(done.stdout.splitlines()) == ["[1] [('a.tar', b'a.tara.tar')]", "[2] [('b.tar', b'b.tarb.tar')]"]
    desk.nothing_is_left()


def test_what_the_training_reports_is_kept_and_told(desk: Desk) -> None:
    code = "from weft_trainer import log_metrics; [log_metrics(loss=4 - n, step=n, group='train') for n in range(3)]"
    extract = {"regex": "accuracy %{FLOAT:a}", "scalars": {"accuracy": {"type": "FLOAT", "value": "$a"}}}
    manifest = desk.manifest(
        f'python -c "{code}" && echo accuracy 0.75',
        evaluation_metrics={"type": "regex_extractor", "groups": {"test": extract}},
    )
    done = desk.run(manifest, "--out", "mine")
    assert re.search(r"^train/loss +3 +2 +2 +2 +4 ", done.stderr, re.MULTILINE), done.stderr
    assert re.search(r"^test/accuracy +1 +0 +0\.75 ", done.stderr, re.MULTILINE), done.stderr
    assert re.search(r"^metrics: +mine/metrics.csv$", done.stderr, re.MULTILINE), done.stderr
    with (desk.folder / "mine/metrics.csv").open(newline="") as file:
        rows = sorted((row["name"], row["learner"], row["step"], row["value"]) for row in csv.DictReader(file))
    losses = [("train/loss", "1", str(step), str(4.0 - step)) for step in range(3)]
    assert rows == [("test/accuracy", "1", "0", "0.75"), *losses]


def test_ctrl_c_saves_a_checkpoint_and_resume_goes_on_from_it(desk: Desk) -> None:
    go = desk.folder / "go"
    manifest = desk.manifest("exec python steps.py 20 0.1", env={"HOLD": str(go)})
    process = desk.start(manifest)
    assert process.stdout is not None
    for line in process.stdout:
        if line == "step 5\n":
            break
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    assert "HALTED" in errors
    assert "weft-run/desk-job/checkpoints" in errors
    last = max(int(step) for step in re.findall(r"step (\d+)", line + rest))
    go.touch()
    done = desk.run(manifest, "--resume")
    started = re.match(r"attempt 2 starts at step (\d+)", done.stdout)
    assert started, done.stdout
    assert last <= int(started[1]) <= last + 1
    assert "step 19\n" in done.stdout
    results = desk.folder / "weft-run/desk-job/results"
    assert (results / "model.txt").read_text() == "trained for 20 steps\n"
    desk.nothing_is_left()


def test_kill_9_of_the_command_leaves_nothing_running(desk: Desk) -> None:
    process = desk.start(desk.manifest("sleep 600 & echo up; wait", learners=2))
    assert process.stdout is not None
    assert process.stdout.readline().endswith("up\n")
    process.kill()
    process.communicate(timeout=300)
    desk.nothing_is_left()


@pytest.mark.parametrize(
    ("part", "code", "said"),
    [("weft_embedded.run", 1, "the run broke off"), ("weft_workers.engines.local", 10, "the local engine ended")],
)
def test_kill_9_of_a_part_of_it_leaves_nothing_running(desk: Desk, part: str, code: int, said: str) -> None:
    process = desk.start(desk.manifest("sleep 600 & echo up; wait", learners=2))
    assert process.stdout is not None
    assert process.stdout.readline().endswith("up\n")
    [victim] = alive(desk.processes(), lambda candidate: part in candidate.cmdline())
    victim.kill()
    _, errors = process.communicate(timeout=300)
    assert process.returncode == code, errors
    assert said in errors
    desk.nothing_is_left()


def test_the_exit_code_is_the_jobs_and_a_gang_fails_as_one(desk: Desk) -> None:
    command = (
        'echo "attempt $WEFT_ATTEMPT"; here="$JOB_STATE_DIR/here-$WEFT_ATTEMPT"; if [ $LEARNER_ID = 2 ]; '
        "then until [ -e $here ]; do sleep 0.05; done; exit 7; fi; touch $here; sleep 600"
    )
    begun = time.monotonic()
    done = desk.run(desk.manifest(command, learners=2, retries=1), code=10)
    assert time.monotonic() - begun < 300
    assert "learner 2: exit code 7" in done.stderr
    assert "retry 1 of 1 after: learner 2" in done.stderr
    assert "[1] attempt 2" in done.stdout
    limited = desk.run(desk.manifest("sleep 600", max_runtime="1s"), "--json", code=10)
    assert json.loads(limited.stdout.splitlines()[-1])["reason"] == "max_runtime of 1s exceeded"
    desk.nothing_is_left()


def test_what_can_not_be_is_said_before_anything_starts(desk: Desk) -> None:
    store = {"id": "s3", "datastore": "kept", "training_data": {"container": "c"}}
    wrong = desk.run(desk.manifest("true", learnerz=2), code=3)
    assert "did you mean 'learners'?" in wrong.stderr
    assert "--data s3=FOLDER" in desk.run(desk.manifest("true", data_stores=[store]), code=1).stderr
    assert not (desk.folder / "weft-run").exists()
    gpus = desk.run(desk.manifest("true", gpus=64), code=10)
    assert "64 GPUs, this machine has" in gpus.stderr
    desk.nothing_is_left()


# The first job of an image builds its environment.
@pytest.mark.parametrize("launcher", ["horovod", "pytorch", "tensorflow"])
def test_two_learners_meet(desk: Desk, launcher: str) -> None:
    """By what the launcher says of the gang. test_launchers.py shows that the frameworks understand it, and
    test_elastic.py trains an example of PyTorch on two learners."""
    done = desk.run(desk.manifest("", learners=2, framework={"name": launcher, "command": "python meet.py"}))
    assert {f"[{rank + 1}] rank {rank} of 2: all have met" for rank in (0, 1)} <= set(done.stdout.splitlines())
    desk.nothing_is_left()


def test_two_learners_of_ray_meet(desk: Desk) -> None:
    framework = {"name": "ray", "command": "python ray_nodes.py"}
    done = desk.run(desk.manifest("", learners=2, cpus=1, memory="3Gb", framework=framework))
    assert "[1] totals as they should be: True" in done.stdout.splitlines(), done.stdout
    desk.nothing_is_left()


def test_a_kept_data_store_is_opened_with_the_environments_credentials(desk: Desk, stack: Stack) -> None:
    """The manifest's own S3, for data and results; not a word to the server."""
    kept = embedded_s3(stack)
    client = boto3.client(
        "s3",
        endpoint_url=kept["AWS_ENDPOINT_URL"],
        region_name="us-east-1",
        aws_access_key_id=kept["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=kept["AWS_SECRET_ACCESS_KEY"],
    )
    stack.client.data.create("default:desk")
    client.put_object(Bucket="desk", Key="in/word.txt", Body=b"weft")
    store = {
        "id": "s3",
        "datastore": "default",
        "training_data": {"container": "desk", "prefix": "in"},
        "training_results": {"container": "desk", "prefix": "out"},
    }
    manifest = desk.manifest("cp $DATA_DIR/word.txt $RESULT_DIR/copy.txt", data_stores=[store])
    done = desk.run(manifest, "--secret", "default", env=kept)
    assert "1 file" in done.stderr
    found = [stored["Key"] for stored in client.list_objects_v2(Bucket="desk", Prefix="out/")["Contents"]]
    assert any(re.fullmatch(r"out/run-\w+/copy\.txt", key) for key in found), found
    # Wheels, too.
    wheel = make_wheel(desk.folder / "built", "weft-alpha", "1.4")
    client.put_object(Bucket="desk", Key=f"wheels/{wheel.name}", Body=wheel.read_bytes())
    asked = {
        "name": "python",
        "command": "python -c 'import weft_alpha; print(weft_alpha.__version__)'",
        "packages": ["weft-alpha"],
    }
    wheels: dict[str, Any] = {"id": "s3", "datastore": "default", "wheels": {"container": "desk", "prefix": "wheels"}}
    manifest = desk.manifest("", framework=asked, data_stores=[wheels])
    assert desk.run(manifest, "--secret", "default", env=kept).stdout == "1.4\n"
    wheels["wheels"] = {"container": "desk", "prefix": "other"}
    manifest = desk.manifest("", framework=asked, data_stores=[wheels])
    assert "wheels: bring them with the code (framework.wheels)" in " ".join(desk.run(manifest, code=1).stderr.split())
    desk.nothing_is_left()


def test_an_example_runs_here_and_then_the_same_one_in_the_service(desk: Desk, stack: Stack, digits: Path) -> None:
    """Alone, as each process imports PyTorch."""
    name = "mnist-torchrun"
    folder = EXAMPLES / name
    manifest = folder / "manifest.yml"
    changes = ("--learners", "1", "--set", "framework.command=python train.py --epochs 2")
    here = desk.run(manifest, folder, "--data", f"digits={digits}", *changes)
    assert (desk.folder / f"weft-run/{name}/results").is_dir()
    desk.nothing_is_left()
    sent = stack.weft("train", str(manifest), str(folder), *changes, "--follow", timeout=1400)
    accuracy = [re.findall(r"test accuracy ([\d.]+)", run.stdout) for run in (here, sent)]
    assert len(accuracy[0]) == len(accuracy[1]) == 1
    assert abs(float(accuracy[0][0]) - float(accuracy[1][0])) < 0.05
    job = stack.client.job("@last")
    points = {of: metric["points"] for of, metric in series(stack, job).items()}
    assert points == {("train/loss", 1): 2, ("train/accuracy", 1): 2, ("test/accuracy", 1): 1}
