"""Prometheus metrics of the service, and the Grafana dashboard that asks for them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.workers.world import World

from weft_api.engines.installation_metrics import InstallationMetrics
from weft_api.telemetry import Metrics as ApiMetrics
from weft_core.lifecycle.states import LearnerPhase
from weft_workers.housekeeping import Housekeeping

_DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "weft.json"


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, labels)


def test_steps_waits_and_attempts_are_counted(world: World) -> None:
    counted = world.context.metrics.registry
    job = world.running()
    assert value(counted, "weft_admission_wait_seconds_count", engine="local") == 1
    assert value(counted, "weft_admission_pass_seconds_count", engine="local") == 1
    assert value(counted, "weft_step_seconds_count", action="Launch") == 1
    world.exit(job, 0)
    world.step(job, 3)
    assert world.job(job).state == "COMPLETED"
    assert value(counted, "weft_attempts_total", engine="local", outcome="SUCCEEDED") == 1
    world.step(world.submit(engine="cloud"))
    assert value(counted, "weft_admission_wait_seconds_count", engine="cloud") is None, "not admitted"


def test_queues_and_engines_are_told_from_the_store(world: World) -> None:
    installation = _installation_metrics(world)
    engine = world.context.engines["local"]
    Housekeeping(world.context).check(engine)
    first = world.submit(resources={"gpus": 3})
    world.step(first, 2)
    waiting = world.submit(resources={"gpus": 3})
    world.step(waiting)
    told = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(generate_latest(installation).decode())
        for sample in family.samples
    }
    assert told["weft_queue_length", "QUEUED", "local"] == 1
    assert told["weft_queue_length", "PENDING", "local"] == 1
    assert told["weft_queue_oldest_seconds", "local"] > 0
    assert told["weft_jobs", "QUEUED"] == 1
    assert told["weft_engine_up", "local"] == 1
    assert told["weft_engine_capacity", "gpus", "local"] == 4
    assert told["weft_engine_used", "gpus", "local"] == 3
    world.engine.unreachable = "connection refused"
    Housekeeping(world.context).check(engine)
    assert b'weft_engine_up{engine="local"} 0.0' in generate_latest(installation)
    world.phase(first, LearnerPhase.PROCESSING)


def _installation_metrics(world: World) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(InstallationMetrics(world.context.database))
    return registry


def _samples(registry: CollectorRegistry) -> set[str]:
    """Names as queries write them, of all that the registry can ever tell."""
    names = set()
    for family in registry.collect():
        ends = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(family.type, [""])
        names |= {family.name + end for end in ends}
    return names


def test_the_dashboard_asks_only_for_what_there_is(world: World) -> None:
    dashboard: dict[str, Any] = json.loads(_DASHBOARD.read_text())
    registries = (
        world.context.metrics.registry,
        ApiMetrics().registry,
        _installation_metrics(world),
    )
    there = set().union(*map(_samples, registries))
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    queries += [variable["definition"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    asked = {name for query in queries for name in re.findall(r"\bweft_\w+", query)}
    assert asked <= there, asked - there
    unused = {name for name in there if not name.endswith(("_sum", "_count", "_bucket"))} - asked
    assert unused == set(), "a metric that the dashboard leaves out"
    for query in queries:
        assert query.count("(") == query.count(")"), query
        assert query.count("{") == query.count("}"), query
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    places = [tuple(panel["gridPos"].values()) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)
