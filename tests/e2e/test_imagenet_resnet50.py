"""The example imagenet-resnet50 as it is, on small images in the layouts of `weft data prepare`; and `weft bench`."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from tests.e2e.stack import REPOSITORY, Stack, lines

EXAMPLE = REPOSITORY / "examples/imagenet-resnet50"
SMALL = "--depth 18 --width 8 --image-size 32 --batch-size 8 --warmup-epochs 1 --workers 1 --base-lr 1 --log-every 2"
LAYOUTS = {"pytorch": "webdataset", "tensorflow": "tfrecords", "keras": "tfrecords"}


@pytest.fixture(scope="module")
def images(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> None:
    """96 pictures of three colours to train on and 15 to validate on, in the containers that the manifests name."""
    folder = tmp_path_factory.mktemp("pictures")
    chance = random.Random(1)
    for split, count in (("train", 32), ("validation", 5)):
        for channel, name in enumerate(("blue-ish", "green-ish", "red-ish")):
            place = folder / split / name
            place.mkdir(parents=True)
            for number in range(count):
                pixels = bytearray(chance.randrange(80) for _ in range(48 * 40 * 3))
                pixels[channel::3] = bytes(150 + value for value in pixels[channel::3])
                (place / f"{number}.ppm").write_bytes(b"P6 48 40 255\n" + pixels)
    for layout in set(LAYOUTS.values()):
        target = f"default:imagenet-{layout}"
        stack.weft("data", "prepare", "imagefolder", str(folder), target, "--layout", layout, "--records", "12")
    stack.client.data.create("default:imagenet-models")


# The first run of an image builds its environment.
@pytest.mark.parametrize(
    ("folder", "manifest", "more", "distribution", "model"),
    [
        ("pytorch", "manifest-torchrun.yml", "--amp bfloat16 --fp16-allreduce", "torch.distributed", "model.pt"),
        ("tensorflow", "manifest.yml", "--fp16-allreduce", "horovod", "model.keras"),
        ("keras", "manifest.yml", "--fp16-allreduce", "horovod", "model.keras"),
    ],
    ids=["pytorch", "tensorflow", "keras"],
)
def test_it_trains_on_two_learners(
    stack: Stack,
    images: None,
    tmp_path: Path,
    folder: str,
    manifest: str,
    more: str,
    distribution: str,
    model: str,
) -> None:
    """PyTorch with Horovod: below, and in tests/examples/test_imagenet_runs.py."""
    command = f"python train.py {SMALL} --epochs 3 --decay-epochs 2 {more}"
    values = {"framework.command": command, "memory": "3Gb"}
    job = stack.client.train(EXAMPLE / folder / manifest, EXAMPLE / folder, overrides=values)
    job = job.wait(timeout=1400, check=False)
    shown = "\n".join(f"[{line.learner}] {line.text}" for line in job.logs())
    assert job.state == "COMPLETED", f"{job.reason}\n{shown}"
    assert [f"rank {rank} of 2 on cpu" in lines(job, rank + 1) for rank in (0, 1)] == [True, True]
    log = lines(job)
    epochs = [line for line in log if re.match(r"epoch \d/3  loss", line)]
    # 96 images are six steps of 2 × 8. The rate is 1 × 8/256 for one process, twice that for both, and then a tenth.
    assert [line.split("learning rate ")[1].split()[0] for line in epochs] == ["0.0572917", "0.0625", "0.00625"]
    # From 0.8 to 0.4, whatever the seed; the smoothed labels leave 0.29.
    assert float(epochs[-1].split("loss ")[1].split()[0]) < float(epochs[0].split("loss ")[1].split()[0])
    assert float(epochs[-1].split("top-1 ")[1].split()[0]) >= 0.5  # by chance: 0.33
    validated = [float(line.split("top-1 ")[1].split()[0]) for line in log if "  validation top-1 " in line]
    assert len(validated) == 3
    assert max(validated) >= 0.5  # so few steps leave the normalization's averages rough
    told = dict(re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in log[log.index("summary") + 1 :][:8])
    assert told["data length"] == "96 images, 15 to validate on"
    assert told["batch size"] == "8 per device, 16 in all"
    assert (told["devices"], told["distributed"]) == ("2 (cpu)", f"yes, {distribution}")
    assert float(told["images/sec"].split()[0]) > 0
    files = {file.path for file in job.files()}
    assert {model, "summary.json"} <= files
    assert any(path.startswith("tensorboard/") and "tfevents" in path for path in files)
    summary = json.loads(job.download_file("summary.json", tmp_path / "summary.json").read_text())
    assert (summary["devices"], summary["total_batch_size"], summary["distributed"]) == (2, 16, True)
    assert summary["top_1"] == pytest.approx(validated[-1], abs=1e-4)


def test_a_benchmark_is_measured_printed_and_kept(stack: Stack, tmp_path: Path) -> None:
    plot = tmp_path / "scaling.svg"
    small = "--depth 18 --width 8 --image-size 32 --batch-size 4 --memory 2Gb"
    short = "--warmup-batches 1 --iterations 3 --batches-per-iteration 2"
    words = f"bench resnet50 --learners 1,2 --engine local {small} {short} --plot {plot} --json".split()
    done = stack.weft(*words, timeout=1400)
    points = json.loads(done.stdout)
    assert [(point["learners"], point["devices"], point["state"]) for point in points] == [
        (1, 1, "COMPLETED"),
        (2, 2, "COMPLETED"),
    ]
    for point in points:
        assert len(point["rates"]) == 3
        assert point["images_per_second"] == pytest.approx(sum(point["rates"]) / 3)
        assert point["images_per_second"] > 0
    alone, both = points
    assert both["efficiency"] == pytest.approx(both["images_per_second"] / 2 / alone["images_per_second"])
    assert "<svg" in plot.read_text()
    assert {job["id"] for job in stack.json("list", "--label", f"bench-run={alone['run']}")} == {
        alone["job"],
        both["job"],
    }
    again = stack.json("bench", "show")
    assert again == points
