"""``weft bench``: its jobs, their measurements, and the evaluation."""

from __future__ import annotations

import json
import shlex
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml
from tests.cli.conftest import Weft
from tests.cli.double import Answer, Double, Seen, as_json, events, job, line, problem

from weft.bench import FRAMEWORKS, BenchJob, Plan, efficiency, read
from weft.bundle import open_bundle
from weft.client import Client
from weft.exits import ExitCode
from weft.ui.bench import svg

RUN = "0a1b2c3d"
END = (None, "end", {"state": "COMPLETED", "reason": ""})


def measurement(rate: float, devices: int) -> str:
    facts = {"plus_minus": rate / 50, "rates": [rate, rate], "devices": devices, "device": "cpu", "batch_size": 8}
    return "benchmark " + json.dumps({"images_per_second": rate, **facts})


def benched(double: Double, number: int, rate: float | None, state: str = "COMPLETED", text: str | None = None) -> None:
    """A job of ``number`` learners on the server, whose log ends with its measurement."""
    known = job(id=f"job-00000000000{number}", learners=number, state=state, reason="learner 1 failed", labels=LABELS)
    double.on("GET", f"jobs/{known['id']}", as_json(known))
    text = text or (measurement(rate, number) if rate else "no more to say")
    double.on("GET", f"jobs/{known['id']}/logs", as_json({"lines": [line(1, "iteration 2/2"), line(2, text)]}))


LABELS = {"bench": "resnet50", "bench-run": RUN}


@pytest.mark.parametrize(("framework", "launcher"), FRAMEWORKS)
def test_the_program_and_its_manifest_are_at_hand(framework: str, launcher: str) -> None:
    plan = Plan(framework, launcher, "gpu", 4, 8, "32Gb", {"batch-size": 64, "amp": None, "fp16-allreduce": True})
    made = plan.manifest(2)
    assert (plan.code / "train.py").is_file()
    assert {name: made[name] for name in ("learners", "engine", "gpus", "cpus", "memory")} == {
        "learners": 2,
        "engine": "gpu",
        "gpus": 4,
        "cpus": 8,
        "memory": "32Gb",
    }
    assert made["labels"] == {"bench": "resnet50", "bench-run": plan.run}
    assert "data_stores" not in made
    assert shlex.split(made["framework"]["command"]) == [
        *("python", "train.py", "--benchmark", "--batch-size", "64", "--fp16-allreduce")
    ]


def test_efficiency_is_per_device_beside_the_fewest_learners(double: Double, client: Client) -> None:
    benched(double, 2, 100)
    benched(double, 4, 150)
    benched(double, 8, None, "FAILED")
    points = [read(client.job(f"job-00000000000{number}")) for number in (2, 4, 8)]
    assert [efficiency(point, points) for point in points] == [1.0, 0.75, None]


@pytest.mark.parametrize("text", ["benchmark is over", "benchmark {}", 'benchmark {"images_per_second": "quick"}'])
def test_a_line_that_only_looks_like_one_is_none(double: Double, client: Client, text: str) -> None:
    benched(double, 1, None, text=text)
    assert read(client.job("job-000000000001")).measured is None


def test_the_process_that_speaks_may_have_a_label(double: Double, client: Client) -> None:
    benched(double, 1, None, text="[0] " + measurement(12.5, 2))
    measured = read(client.job("job-000000000001")).measured
    assert measured
    assert (measured.images_per_second, measured.devices) == (12.5, 2)


def test_show_prints_and_plots_a_benchmark_again(double: Double, weft: Weft, tmp_path: Path) -> None:
    benched(double, 1, 50)
    benched(double, 2, 90)
    jobs = [job(id=f"job-00000000000{n}", learners=n, state="COMPLETED", labels=LABELS) for n in (2, 1)]
    double.on("GET", "jobs", as_json({"jobs": jobs, "next_cursor": None}))
    done = weft("bench", "show", RUN, "--plot", str(tmp_path / "bench.svg"))
    assert done.code == 0, done.err
    head, first, second = done.out.splitlines()
    assert head.split() == ["LEARNERS", "DEVICES", "IMAGES/SEC", "±", "PER", "DEVICE", "EFFICIENCY", "JOB", "STATE"]
    assert first.split()[:6] == ["1", "1", "cpu", "50.0", "1.0", "50.0"]
    assert second.split() == ["2", "2", "cpu", "90.0", "1.8", "45.0", "90%", "job-000000000002", "COMPLETED"]
    drawn = ET.parse(tmp_path / "bench.svg").getroot()
    texts = {element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert {"50.0 (100%)", "90.0 (90%)", "1 learner", "2 learners", "2 cpu devices"} <= texts
    told = json.loads(weft("bench", "show", RUN, "--json").out)
    assert [(point["learners"], point["images_per_second"], point["efficiency"]) for point in told] == [
        (1, 50.0, 1.0),
        (2, 90.0, 0.9),
    ]


def test_a_benchmark_submits_checks_first_and_says_what_failed(double: Double, weft: Weft) -> None:
    benched(double, 1, 50)
    benched(double, 2, None, "FAILED")
    double.on("POST", "manifests:validate", as_json({"valid": True, "manifest": {}, "notes": []}))
    for number in (1, 2):
        double.on("GET", f"jobs/job-00000000000{number}/logs/follow", events(END))

    def submit(seen: Seen) -> Answer:
        assert len(double.requests("POST", "manifests:validate")) == 2
        asked = yaml.safe_load(seen.json["manifest"])
        number = asked["learners"]
        assert "--depth 18" in asked["framework"]["command"]
        return as_json(job(id=f"job-00000000000{number}", learners=number, state="QUEUED", labels=asked["labels"]), 201)

    double.on("POST", "jobs", submit)
    with open_bundle(Plan().code) as bundle:
        assert bundle
        double.on("HEAD", f"code/{bundle.sha256}", Answer(200))
    done = weft("bench", "resnet50", "--learners", "2,1", "--depth", "18")
    assert done.code == ExitCode.JOB_FAILED
    assert "1 learner: 50.0 ± 1.0 images/sec" in done.err
    assert "2 learners: FAILED learner 1 failed" in done.err
    assert "job-000000000002: learner 1 failed" in done.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--learners 1,x", "is not a list of positive numbers"),
        ("--learners 0", "is not a list of positive numbers"),
        ("--framework keras --launcher torchrun", "torchrun starts only PyTorch"),
        ("--plot /nowhere/at/all.svg", "there is no folder"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_submitted(
    double: Double, weft: Weft, words: str, says: str
) -> None:
    done = weft("bench", "resnet50", *words.split())
    assert done.code == ExitCode.USAGE
    assert says in " ".join(done.err.replace("│", " ").split())
    assert double.seen == []


def test_a_manifest_that_the_user_never_saw_has_no_lines(double: Double, weft: Weft) -> None:
    fault = {"path": "engine", "message": "expected one of: local, found 'nowhere'", "line": 15}
    double.on("POST", "manifests:validate", problem(400, "invalid_manifest", problems=[fault]))
    done = weft("bench", "resnet50", "--learners", "1", "--engine", "nowhere")
    assert done.code == ExitCode.INVALID
    assert "the benchmark job with 1 learner is not valid: 1 problem" in done.err
    assert ":15" not in done.err


def test_nothing_measured_is_no_plot(client: Client, double: Double) -> None:
    benched(double, 1, None, "FAILED")
    with pytest.raises(ValueError, match="nothing was measured"):
        svg([BenchJob(client.job("job-000000000001"))], "title")
