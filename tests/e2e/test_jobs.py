"""A job's whole life on a real stack: what a learner finds, where results go, halt, resume, rerun, delete."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from tests.e2e.stack import PROGRAMS, Stack, eventually, follow_to, lines, manifest, series

import weft


def test_a_plain_command_from_submit_to_result(stack: Stack, tmp_path: Path) -> None:
    job = stack.train(manifest("python count.py 3 0")).wait(timeout=900)
    assert lines(job) == ["line 0", "line 1", "line 2"]
    states = [event.state for event in job.events() if event.state]
    assert states[0] == "QUEUED"
    assert states[-1] == "COMPLETED"
    assert "learner-1.txt" in [file.path for file in job.files()]
    model = job.download_trained_model(tmp_path / "model.zip")
    assert zipfile.ZipFile(model).read("learner-1.txt") == b"3\n"
    definition = job.download_definition(tmp_path / "code.zip")
    assert zipfile.ZipFile(definition).read("count.py") == (PROGRAMS / "count.py").read_bytes()


def test_results_of_a_job_without_a_store_are_kept_by_weft(stack: Stack, tmp_path: Path) -> None:
    job = stack.train(manifest("python count.py 2 0", data_stores=[])).wait(timeout=900)
    model = job.download_trained_model(tmp_path / "model.zip")
    assert zipfile.ZipFile(model).read("learner-1.txt") == b"2\n"


def test_a_script_that_knows_nothing_of_weft_loses_nothing(stack: Stack, tmp_path: Path) -> None:
    wanted = manifest("python script.py", results="out/*", data_stores=[])
    job = stack.train(wanted).wait(timeout=900)
    assert {"out/x", "workdir/model.pt", "workdir/wandb/offline-run-1/run-1.wandb"} <= {
        file.path for file in job.files()
    }
    run = "workdir/runs/Nov23_12-00-00_host/"
    assert [file.path for file in job.files() if file.path.startswith(run)] == [run + "events.out.tfevents.torch"]
    found = series(stack, job)
    assert found.keys() == {("loss", 1)}, "not the event file that is part of the code"
    assert (found["loss", 1]["points"], found["loss", 1]["last_step"]) == (3, 2)
    [kept] = [event.message for event in job.events() if " kept " in event.message]
    assert kept.endswith("add to the manifest: results: [out/*, model.pt, runs/**, wandb/**]")
    shown = stack.weft("show", job.id).stdout
    assert "1 file (2 bytes: out/x) stored as results: names them" in shown
    assert "kept below workdir/" in shown


def test_what_a_learner_finds(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "data/deep").mkdir(parents=True)
    (tmp_path / "data/deep/a.bin").write_bytes(b"a" * 100_000)
    stack.weft("data", "put", str(tmp_path / "data"), "default:place-data/set1")
    stack.client.secrets.set("api-key", "s3cr3t-value")
    store = {
        "id": "s3",
        "datastore": "default",
        "training_data": {"container": "place-data", "prefix": "set1"},
        "training_results": {"container": "results"},
    }
    wanted = manifest(
        "python place.py",
        learners=2,
        data_stores=[store],
        env={"GREETING": "hello"},
        secrets={"API_KEY": "api-key"},
    )
    job = stack.train(wanted).wait(timeout=900)
    for learner in (1, 2):
        found = json.loads(next(line for line in lines(job, learner) if line.startswith("FOUND"))[6:])
        assert found.pop("data") == ["deep", "deep/a.bin"]
        assert found.pop("leaks") == []
        assert found.pop("values") == {
            "LEARNER_ID": str(learner),
            "NUM_LEARNERS": "2",
            "GPU_COUNT": "0",
            "TRAINING_ID": job.id,
            "GREETING": "hello",
            "API_KEY": "***",
            "API_KEY backwards": "eulav-t3rc3s",
        }
        assert all(found.values()), found
    shown = stack.weft("show", job.id, "--json").stdout + stack.weft("events", job.id, "--json").stdout
    assert "s3cr3t-value" not in shown


def test_halt_saves_a_checkpoint_and_resume_goes_on_from_it(stack: Stack, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = stack.train(manifest("exec python steps.py 20 0.1", env={"HOLD": str(go)}))
    follow_to(job, "^step 5$")
    job.halt()
    job.halt()  # idempotent
    job = job.wait(timeout=900, check=False)
    assert job.state == "HALTED"
    assert stack.learners() == []
    go.touch()
    job.resume()
    job = job.wait(timeout=900)
    assert job.state == "COMPLETED"
    starts = [line for line in lines(job) if line.startswith("attempt")]
    assert starts[0] == "attempt 1 starts at step 0"
    assert len(starts) == 2
    assert int(starts[1].rsplit(" ", 1)[1]) >= 5
    steps = [int(line.split()[1]) for line in lines(job) if line.startswith("step")]
    assert steps[-1] == 19


def test_rerun_is_a_new_job_and_sends_no_code_again(stack: Stack) -> None:
    first = stack.train(manifest("python count.py 2 0")).wait(timeout=900)
    second = first.rerun({"name": "again"}).wait(timeout=900)
    assert (second.rerun_of, second.name, second.code_sha256) == (first.id, "again", first.code_sha256)
    assert second.id != first.id


def test_delete_of_a_running_job_leaves_nothing(stack: Stack) -> None:
    job = stack.train(manifest("sleep 600"))
    eventually(lambda: job.refresh().state == "PROCESSING", "processing")
    job.delete()

    def gone() -> bool:
        try:
            job.refresh()
        except weft.errors.NotFound:
            return True
        return False

    eventually(gone, "deleted")
    assert stack.learners() == []


def test_a_job_that_must_wait_says_for_what_and_priority_decides_who_is_next(stack: Stack) -> None:
    cpus = stack.client.engine("local").capacity["cpus"]
    holder = stack.train(manifest("sleep 600", cpus=cpus))
    eventually(lambda: holder.refresh().state == "PROCESSING", "processing")
    low = stack.train(manifest("python count.py 1 0", cpus=cpus, priority=10))
    high = stack.train(manifest("python count.py 1 0", cpus=cpus, priority=90))
    eventually(lambda: "CPU" in high.refresh().reason, "a reason")
    assert high.refresh().state == low.refresh().state == "QUEUED"
    holder.halt(grace_seconds=1)
    high, low = high.wait(timeout=900), low.wait(timeout=900)
    assert high.started_at is not None
    assert low.started_at is not None
    assert high.started_at < low.started_at


def test_a_job_that_can_never_fit_is_told_so(stack: Stack) -> None:
    job = stack.train(manifest("true", cpus=1000)).wait(timeout=900, check=False)
    assert job.state == "FAILED"
    assert "can never fit: asks 1,000 CPUs" in job.reason


def test_max_runtime_ends_a_job(stack: Stack) -> None:
    job = stack.train(manifest("sleep 600", max_runtime="2s")).wait(timeout=900, check=False)
    assert job.state == "FAILED"
    assert "max_runtime" in job.reason


def test_two_learners_of_a_plain_command_both_run(stack: Stack) -> None:
    job = stack.train(manifest("python count.py 2 0", learners=2)).wait(timeout=900)
    assert lines(job, 1) == lines(job, 2) == ["line 0", "line 1"]
    assert {"learner-1.txt", "learner-2.txt"} <= {file.path for file in job.files()}
