"""A drill of a manifest with ``sweep`` trains one trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.conftest import Weft, accept_code
from tests.cli.double import ID, Double, as_json, job

from weft.drill.trial import trial_of
from weft.errors import WeftError
from weft.script import as_yaml
from weft_core.manifest import parse_manifest
from weft_core.settings import Settings

SWEEP = """name: digits
framework: {name: python, command: "python train.py --lr ${sweep.lr}"}
sweep:
  parameters: {lr: {log: [1e-4, 0.01], set: env.LR}, batch: [16, 32]}
  metric: score
  search: asha
  rungs: {parameter: epochs, max: 9}
"""


def test_the_example_of_a_sweep_becomes_a_manifest_of_one_job() -> None:
    trial = trial_of(Path("examples/sweep-mnist/manifest.yml").read_text(), {})
    assert trial is not None
    assert str(trial) == "learning_rate=0.0223607, batch_size=16, momentum=0.475, epochs=9"
    parsed = parse_manifest(as_yaml(trial.manifest), Settings()).manifest
    assert (parsed.sweep, parsed.parameters) == (None, trial.manifest["parameters"])


@pytest.mark.parametrize(
    ("choices", "value"),
    [
        (["adam", "sgd"], "adam"),
        ({"values": [True, False], "set": "env.FAST"}, True),
        ({"uniform": [0, 1]}, 0.5),
        ({"uniform": [0, 0.9], "step": 0.25}, 0.25),
        ({"int": [1, 8]}, 4),
        ({"int": [1, 9], "step": 4}, 5),
        ({"int_log": [1, 100]}, 10),
    ],
)
def test_a_parameter_gets_its_first_value_or_the_middle_of_its_range(choices: Any, value: Any) -> None:
    trial = trial_of(yaml.safe_dump({"sweep": {"parameters": {"x": choices}}}), {})
    assert trial is not None
    assert trial.manifest == {"parameters": {"x": value}}


def test_a_value_that_is_given_also_reaches_the_key_that_its_parameter_sets() -> None:
    trial = trial_of(SWEEP, {})
    assert trial is not None
    assert (str(trial), trial.values) == ("lr=0.001, batch=16, epochs=9", {"env.LR": "0.001"})
    trial = trial_of(SWEEP, {"parameters.lr": "0.5", "parameters.epochs": "2"})
    assert trial is not None
    assert (str(trial), trial.values) == ("lr=0.5, batch=16, epochs=2", {"env.LR": "0.5"})


@pytest.mark.parametrize("text", ["name: x", "sweep: 3", "sweep: {metric: x}", "[1", ""])
def test_what_is_no_sweep_is_left_to_the_server(text: str) -> None:
    assert trial_of(text, {}) is None


@pytest.mark.parametrize("choices", [[], 3, {"log": [1]}, {"set": "env.X"}, {"log": ["a", "b"]}])
def test_a_parameter_without_values_is_an_error(choices: Any) -> None:
    with pytest.raises(WeftError, match=r"sweep.parameters.x is .*; accepted is a list of values, or a range"):
        trial_of(yaml.safe_dump({"sweep": {"parameters": {"x": choices}}}), {})


def test_the_command_submits_a_trial(server: Double, weft: Weft, code: Path) -> None:
    (code / "manifest.yml").write_text(SWEEP)
    accept_code(server, code)
    server.on("GET", f"jobs/{ID}", as_json(job(state="FAILED", reason="learner 1 exited with 1")))
    done = weft("drill", str(code / "manifest.yml"), "--set", "parameters.epochs=40")
    assert done.code == 1
    assert "one trial of the sweep, with lr=0.001, batch=16, epochs=40; --set parameters.NAME=VALUE" in done.err
    [sent] = server.requests("POST", "jobs")
    manifest = yaml.safe_load(sent.json["manifest"])
    assert "sweep" not in manifest
    assert manifest["parameters"] == {"lr": 0.001, "batch": 16, "epochs": "40"}
    assert (sent.json["set"]["parameters.epochs"], sent.json["set"]["env.LR"]) == ("40", "0.001")
