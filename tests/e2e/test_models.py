"""From a job to a model's version, from there to the next job, and back: on the whole stack."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.e2e.stack import REPOSITORY, Stack, eventually, lines, manifest

import weft

TRANSFER = REPOSITORY / "examples/transfer-learning"


def completed(job: weft.Job) -> weft.Job:
    job = job.wait(timeout=1400, check=False)
    assert job.state == "COMPLETED", f"{job.reason}\n" + "\n".join(line.text for line in job.logs())
    return job


def test_versions_in_wefts_own_store(stack: Stack, tmp_path: Path) -> None:
    keeps = {"training_results": {"model": "tiny"}}
    first = completed(stack.train(manifest("echo one > $RESULT_DIR/weights", data_stores=[keeps]), code=None))
    [version] = stack.client.models.versions("tiny")
    assert (version.job, version.version, version.place) == (first.id, 1, None)
    files = stack.client.models.files("tiny@1")
    assert "weights" in [file.path for file in files]
    assert version.files["bytes"] == sum(file.size for file in files)

    # The job goes, its version stays; two learners start from it, and what they train is its child.
    first.delete()
    eventually(lambda: first.id not in [job.id for job in stack.client.jobs.list()], "the job is deleted")
    command = 'sed "s/^/$PRETRAINED_MODEL $LEARNER_ID /" $PRETRAINED_DIR/weights | tee $RESULT_DIR/weights'
    tune = manifest(command, learners=2, data_stores=[{"model": "tiny@latest"} | keeps])
    second = completed(stack.train(tune, code=None))
    assert [lines(second, learner) for learner in (1, 2)] == [["tiny@1 1 one"], ["tiny@1 2 one"]]
    assert "registered as tiny@2" in [event.message for event in second.events()]
    told = stack.client.models.version("tiny@2")
    assert (told.job, told.parent) == (second.id, "tiny@1")
    assert told.lineage["pretrained"]["sha256"] == version.files["sha256"]
    assert stack.client.models.version("tiny@1").children == ("tiny@2",)
    stack.weft("models", "download", "tiny@2", "--unpack", "-o", str(tmp_path / "tiny"))
    assert (tmp_path / "tiny/weights").read_text() == "tiny@1 1 one\n", "learner 1 stores last"


def test_transfer_learning(stack: Stack, digits: Path, tmp_path: Path) -> None:
    stack.client.data.create("default:models")
    first = completed(stack.client.train(TRANSFER / "manifest-base.yml", TRANSFER))
    second = completed(stack.client.train(TRANSFER / "manifest-registry.yml", TRANSFER))
    assert "features of digits@1, which knows the digits [0, 1, 2, 3, 4]" in lines(second)
    version = stack.client.models.version("digits@2")
    assert (version.job, version.parent) == (second.id, "digits@1")
    assert version.place == f"default:models/digits/trained/{second.id}/"
    lineage = version.lineage
    assert lineage["code_sha256"] == second.code_sha256
    assert lineage["image"]["reference"] == "pytorch:2.13.0"
    assert lineage["manifest"]["framework"]["command"].startswith("python train.py --digits 5")
    assert {name: metric["step"] for name, metric in lineage["metrics"].items()} == {
        "train/loss": 12,
        "test/accuracy": 12,
    }
    assert lineage["metrics"]["test/accuracy"]["last"] >= 0.93
    shown = stack.weft("models", "show", "digits@2").stdout
    assert f"test/accuracy  {lineage['metrics']['test/accuracy']['last']:.5g}" in shown
    sizes = [path.stat().st_size for path in digits.iterdir()]
    assert (lineage["data"]["files"], lineage["data"]["bytes"]) == (len(sizes), sum(sizes))
    assert lineage["data"] == stack.client.models.version("digits@1").lineage["data"], "the same data, the same hash"

    stack.weft("models", "download", "digits@2", "--unpack", "-o", str(tmp_path / "v2"))
    [path] = (tmp_path / "v2").rglob("model.json")
    card = json.loads(path.read_text())
    assert (card["digits"], card["job"]) == ([5, 6, 7, 8, 9], second.id)
    assert (card["parent"]["model"], card["parent"]["job"]) == ("digits@1", first.id)
    assert "digits [5, 6, 7, 8, 9], from digits@1" in evaluate(stack, tmp_path / "v2", digits)

    # A pretrained model in S3 that no registry knows; what comes of it is a version all the same.
    stack.weft("models", "download", "digits@1", "--unpack", "-o", str(tmp_path / "v1"))
    stack.client.data.put(tmp_path / "v1", "default:models/digits/1")
    third = completed(stack.client.train(TRANSFER / "manifest.yml", TRANSFER))
    assert "features of a pretrained model, which knows the digits [0, 1, 2, 3, 4]" in lines(third)
    version = stack.client.models.version("digits@latest")
    assert (version.version, version.job, version.parent) == (3, third.id, None)
    assert version.lineage["pretrained"]["files"] == len(stack.client.models.files("digits@1"))


def evaluate(stack: Stack, model: Path, digits: Path) -> str:
    """What the example's evaluate.py says; the model is a good one."""
    find = [sys.executable, "-m", "weft_workers.environments", "python", "pytorch"]
    python = subprocess.run(find, env=stack.environment, capture_output=True, text=True, check=True).stdout.strip()
    done = subprocess.run(
        [python, str(TRANSFER / "evaluate.py"), str(model), str(digits)],
        env=stack.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert float(done.stdout.split("accuracy:")[1].split()[0]) >= 0.93
    return done.stdout
