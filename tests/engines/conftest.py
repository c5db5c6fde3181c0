"""Every case is run with every kind of engine in turn. A kind that this machine can't have is reported as NOT RUN."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator

import pytest
from tests.engines.bench import Ability, Bench, Case, NotHere, Run, answer_of, settle

from weft_core.engine import LearnerState

KINDS = ("local", "kubernetes", "ray")
"""One module beside this one for each."""

Require = Callable[[Ability], None]


@pytest.fixture(scope="session", params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    kind = importlib.import_module(f"tests.engines.{request.param}")
    try:
        opened = kind.opened(tmp_path_factory.mktemp(request.param))
        made = opened.__enter__()
    except NotHere as error:
        pytest.skip(str(error))
    yield made
    opened.__exit__(None, None, None)


@pytest.fixture(scope="session")
def _ended(bench: Bench) -> Iterator[list[Case]]:
    """The cases that have been closed. At the end of all, nothing of any may be left."""
    cases: list[Case] = []
    yield cases
    settle(bench, cases)


@pytest.fixture(scope="session")
def _shared(bench: Bench, _ended: list[Case]) -> Iterator[Case]:
    case = Case(bench, "shared")
    yield case
    case.close()
    _ended.append(case)


@pytest.fixture
def case(bench: Bench, request: pytest.FixtureRequest, _ended: list[Case]) -> Iterator[Case]:
    name = request.node.originalname.removeprefix("test_").replace("_", "-")[:32].strip("-")
    made = Case(bench, name)
    yield made
    made.close()
    _ended.append(made)
    bench.rest()


@pytest.fixture(scope="module")
def together(bench: Bench, request: pytest.FixtureRequest, _ended: list[Case]) -> Iterator[Case]:
    """For runs that several tests of a module begin together."""
    made = Case(bench, request.node.path.stem.removeprefix("test_"))
    yield made
    made.close()
    _ended.append(made)


@pytest.fixture
def standing(_shared: Case) -> Run:
    """A run of two learners that runs, for cases that do it no harm."""
    for run in _shared.runs[-1:]:
        seen = answer_of(run.observe)
        if seen and run.states(seen) == [LearnerState.RUNNING] * 2:
            return run
    return _shared.run(learners=2).launch().started()


@pytest.fixture
def require(bench: Bench) -> Require:
    """``require("network")``: a case that makes no sense with an engine says why, in the report."""

    def check(ability: Ability) -> None:
        if ability in bench.lacks:
            pytest.skip(f"does not apply to {bench.kind}: {bench.lacks[ability]}")

    return check
