"""The suite detects faults: for each rule, a local engine that breaks it, and the case that has to fail."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.engines import bench as benches
from tests.engines import test_launch, test_loss, test_observe, test_stop, test_unreachable
from tests.engines.bench import OTHERS, OURS, Case
from tests.engines.local import LocalBench
from tests.engines.proxy import Proxy, Way

from weft_core.engine import Capacity, Engine, EngineUnreachable, LearnerState, Observation
from weft_core.launch import LaunchSpec


class Honest:
    """Passes everything on, unless its server is away."""

    def __init__(self, bench: SpoiledBench, installation: str) -> None:
        self.bench, self.inner = bench, bench.honest(installation)
        self.name, self.grows_runs = self.inner.name, self.inner.grows_runs

    def launch(self, spec: LaunchSpec) -> None:
        self._reach()
        self.inner.launch(spec)

    def grow(self, spec: LaunchSpec, ranks: Sequence[int]) -> None:
        self._reach()
        self.inner.grow(spec, ranks)

    def observe(self) -> Mapping[str, Observation]:
        self._reach()
        return self.inner.observe()

    def stop(self, run_name: str, grace: timedelta) -> None:
        self._reach()
        self.inner.stop(run_name, grace)

    def capacity(self) -> Capacity:
        self._reach()
        return self.inner.capacity()

    def _reach(self) -> None:
        if self.bench.away:
            raise EngineUnreachable("its server is away")


class StartsTwice(Honest):
    def launch(self, spec: LaunchSpec) -> None:
        again = spec.run_name in self.observe()
        super().launch(replace(spec, run_name=f"{spec.run_name}-again") if again else spec)


class TakesUnknownForDead(Honest):
    def observe(self) -> Mapping[str, Observation]:
        return {} if self.bench.away else super().observe()


class AdoptsAnything(Honest):
    def launch(self, spec: LaunchSpec) -> None:
        if not self.bench.things(spec.run_name):
            super().launch(spec)


class SeesStrangers(Honest):
    def observe(self) -> Mapping[str, Observation]:
        return {**super().observe(), **self.bench.honest(OTHERS).observe(), **self.bench.honest(OURS).observe()}


class KnowsNoGrace(Honest):
    def stop(self, run_name: str, grace: timedelta) -> None:
        super().stop(run_name, timedelta(0))


class NeverKills(Honest):
    def stop(self, run_name: str, grace: timedelta) -> None:
        super().stop(run_name, timedelta(days=1))


class KnowsItsOwnAlone(Honest):
    def __init__(self, bench: SpoiledBench, installation: str) -> None:
        super().__init__(bench, installation)
        self.launched: set[str] = set()

    def launch(self, spec: LaunchSpec) -> None:
        super().launch(spec)
        self.launched.add(spec.run_name)

    def stop(self, run_name: str, grace: timedelta) -> None:
        if run_name in self.launched:
            super().stop(run_name, grace)


class NoticesNoEnd(Honest):
    def observe(self) -> Mapping[str, Observation]:
        seen = super().observe()
        return {
            name: replace(
                run, learners={r: replace(learner, state=LearnerState.RUNNING) for r, learner in run.learners.items()}
            )
            for name, run in seen.items()
        }


class SpoiledBench(LocalBench):
    """Stands on a network that is either there or not."""

    kind = "spoiled"
    lacks: Mapping[Any, str] = {}
    away = False

    def __init__(self, folder: Path, how: type[Honest]) -> None:
        super().__init__(folder)
        self._how = how
        self.proxy = cast(Proxy, SimpleNamespace(spoiled=self._spoiled))

    def honest(self, installation: str) -> Engine:
        return super().engine(installation)

    def engine(self, installation: str = OURS, timeout: float = 20.0) -> Engine:
        return self._how(self, installation)

    @contextmanager
    def _spoiled(self, way: Way) -> Iterator[None]:
        self.away = True
        yield
        self.away = False

    def close(self) -> None:
        engines = [self.honest(installation) for installation in (OURS, OTHERS)]
        for run in self.runs():
            for engine in engines:
                engine.stop(run, timedelta(0))
        benches.until(lambda: not any(engine.observe() for engine in engines) and not self.runs())
        super().close()


def _play(bench: SpoiledBench, name: str, law: Callable[..., None], patience: float = benches.PATIENCE) -> None:
    """Run a case as pytest would; ``patience`` is the case's own, once the runs that it is given have begun."""
    case, shared = Case(bench, name), Case(bench, f"{name}-shared")
    asked = inspect.signature(law).parameters
    given: dict[str, Any] = {"bench": bench, "case": case, "require": lambda _: None, "way": Way.REFUSED}
    try:
        if "standing" in asked:
            given["standing"] = shared.run(learners=2).launch().started()
        if "begun" in asked:
            given["begun"] = test_stop.begin(shared)
            for run in given["begun"].values():
                run.started()
        with pytest.MonkeyPatch.context() as hurried:
            hurried.setattr(benches, "PATIENCE", patience)
            law(**{parameter: given[parameter] for parameter in asked})
    finally:
        bench.away = False
        case.close()
        shared.close()


_AWAY = test_unreachable.test_a_server_that_is_away_is_unreachable_and_nothing_is_changed
_MUTANTS = [
    (StartsTwice, test_launch.test_launching_again_adopts_what_is_there),
    (TakesUnknownForDead, _AWAY),
    (AdoptsAnything, test_launch.test_a_namesake_is_neither_adopted_nor_stopped),
    (SeesStrangers, test_observe.test_an_installation_sees_its_own_runs_alone),
    (KnowsNoGrace, test_stop.test_one_stop_is_enough_and_gives_time_to_finish),
    (NeverKills, test_stop.test_who_ignores_it_is_killed_when_the_grace_is_over_and_not_before),
    (KnowsItsOwnAlone, test_loss.test_an_orphan_is_listed_and_any_engine_ends_it),
    (NoticesNoEnd, test_loss.test_a_killed_agent_is_seen_and_the_others_go_on),
]


@pytest.mark.parametrize(("how", "law"), _MUTANTS, ids=[how.__name__ for how, _ in _MUTANTS])
def test_an_engine_that_breaks_a_law_fails_its_case(
    tmp_path: Path, how: type[Honest], law: Callable[..., None]
) -> None:
    bench = SpoiledBench(tmp_path, how)
    try:
        _play(bench, "spoiled", law, patience=6.0)
    except (AssertionError, pytest.fail.Exception):
        broken = True
    else:
        broken = False
    bench.close()
    assert broken, f"{law.__name__} does not notice"


def test_the_same_engine_unspoiled_passes_what_only_a_network_shows(tmp_path: Path) -> None:
    bench = SpoiledBench(tmp_path, Honest)
    _play(bench, "honest", _AWAY)
    bench.close()
