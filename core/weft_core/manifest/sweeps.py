"""Checks of ``sweep`` and ``parameters`` that need more than one field."""

from __future__ import annotations

from typing import Any

from weft_core.manifest.environment import reserved
from weft_core.manifest.findings import INVALID, Findings
from weft_core.manifest.models import ParsedManifest
from weft_core.manifest.problems import ManifestError, Problem, did_you_mean
from weft_core.manifest.sweep_models import (
    REFERENCE,
    WITH_RUNGS,
    Rungs,
    Sweep,
    SweepParameter,
    SweepStop,
    Value,
    variable,
)

_TRIALS, _MOST_TRIALS = 20, 100_000
_POPULATION = 8
_HALVING = ("min", "reduction", "sync")
"""The keys of ``rungs`` that ``pbt`` does not have."""


def resolve_sweep(values: dict[str, Any], findings: Findings) -> Sweep | None:
    """The canonical form; None: the manifest has no sweep, or there are problems."""
    asked = values.get("sweep")
    _references(values, findings)
    if not isinstance(asked, dict):
        return None
    if "parameters" in values:
        findings.add("parameters", "sweep gives the parameters their values: leave out either of the two")
    for index, store in enumerate(values.get("data_stores", [])):
        if store is not INVALID and "model" in store.get("training_results", {}):
            message = "each trial would become a version: register the best one when the sweep has ended"
            findings.add(f"data_stores[{index}].training_results.model", message)
    told = asked.get("parameters")
    if not isinstance(told, dict) or findings.has("sweep"):
        return None
    if not told:
        findings.add("sweep.parameters", "expected at least one parameter, found none")
    parameters = {name: SweepParameter(**parameter) for name, parameter in told.items()}
    _check_parameters(parameters, findings)
    search = asked.get("search", "tpe")
    _check_search(search, parameters, findings)
    if "population" in asked and search != "pbt":
        message = f"the search {search} has no population: accepted with pbt"
        findings.add("sweep.population", message, accepted="pbt as sweep.search")
    rungs = _resolve_rungs(asked, search, parameters, findings)
    if findings.has("sweep"):
        return None
    trials, population = asked.get("trials", _TRIALS), None
    if search == "pbt" and rungs is not None:
        population = asked.get("population", max(_POPULATION, asked.get("parallel", 0)))
        trials = _population_trials(asked, population, rungs, findings)
    elif rungs is not None:
        trials = _enough_trials(asked, search, rungs, findings)
    sweep = Sweep(
        parameters=parameters,
        metric=asked["metric"],
        trials=trials,
        search=search,
        rungs=rungs,
        population=population,
    )
    size = sweep.grid_size if search == "grid" else None
    if size is not None and size > 100_000:
        findings.add("sweep.search", f"a grid of {size:,} combinations, accepted are at most 100,000")
    stop = asked.get("stop", {})
    return sweep.model_copy(
        update={
            **{key: asked[key] for key in ("goal", "parallel", "seed") if key in asked},
            "trials": sweep.trials if size is None else min(size, asked.get("trials", size)),
            "stop": SweepStop(
                value=stop.get("value"),
                after_seconds=stop.get("after"),
                failures=stop.get("failures", SweepStop().failures),
            ),
        }
    )


def _check_parameters(parameters: dict[str, SweepParameter], findings: Findings) -> None:
    named: dict[str, str] = {}
    paths: dict[str, str] = {}
    for name, parameter in parameters.items():
        where = f"sweep.parameters.{name}"
        _check_variable(name, where, named, findings)
        if parameter.step is not None and not 0 < parameter.step <= parameter.high - parameter.low:
            accepted = f"a number above 0 and up to {parameter.high - parameter.low:g}"
            findings.add(f"{where}.step", f"expected {accepted}, found {parameter.step:g}", accepted=accepted)
        elif parameter.step is not None and parameter.kind == "int" and not parameter.step.is_integer():
            findings.add(f"{where}.step", f"expected a whole number, found {parameter.step:g}")
        if parameter.set is None:
            continue
        if parameter.set.startswith("env.") and (wrong := reserved(parameter.set[4:])):
            findings.add(f"{where}.set", wrong, found=parameter.set)
        if parameter.set in paths:
            findings.add(f"{where}.set", f"the parameter {paths[parameter.set]!r} sets {parameter.set} as well")
        paths[parameter.set] = name


def _resolve_rungs(
    asked: dict[str, Any], search: str, parameters: dict[str, SweepParameter], findings: Findings
) -> Rungs | None:
    told = asked.get("rungs")
    if (told is None) == (search in WITH_RUNGS):
        if told is None:
            accepted = f"a mapping such as {{parameter: epochs, max: {'20, every: 2' if search == 'pbt' else 27}}}"
            findings.add("sweep.rungs", f"missing: the search {search} needs {accepted}", accepted=accepted)
        else:
            accepted = " or ".join(WITH_RUNGS)
            findings.add(
                "sweep.rungs", f"the search {search} has no rungs: accepted with {accepted}", accepted=accepted
            )
        return None
    if told is None or findings.has("sweep.rungs"):
        return None
    rungs = Rungs(**told)
    _check_keys_of_rungs(told, search, findings)
    least = rungs.min * rungs.reduction
    if search != "pbt" and rungs.max < least:
        accepted = f"a whole number from {least:,}, which is min times reduction"
        findings.add("sweep.rungs.max", f"expected {accepted}, found {rungs.max:,}", accepted=accepted)
    if rungs.parameter in parameters:
        findings.add(
            "sweep.rungs.parameter", f"the search chooses {rungs.parameter!r}: give this parameter another name"
        )
    else:
        named = {variable(name): name for name in parameters}
        _check_variable(rungs.parameter, "sweep.rungs.parameter", named, findings)
    return rungs


def _check_keys_of_rungs(told: dict[str, Any], search: str, findings: Findings) -> None:
    if search != "pbt":
        if "every" in told:
            message = f"the search {search} has no distance between its rungs: accepted with pbt"
            findings.add("sweep.rungs.every", message, accepted="min and reduction")
        return
    for key in _HALVING:
        if key in told:
            findings.add(f"sweep.rungs.{key}", f"the search pbt has no {key}: accepted is every", accepted="every")
    accepted = f"a whole number from 1 to {told['max'] - 1:,}, so that there are two rungs"
    every = told.get("every")
    if every is None:
        findings.add("sweep.rungs.every", f"missing: the search pbt needs {accepted}", accepted=accepted)
    elif every >= told["max"]:
        findings.add("sweep.rungs.every", f"expected {accepted}, found {every:,}", accepted=accepted)


def _population_trials(asked: dict[str, Any], population: int, rungs: Rungs, findings: Findings) -> int:
    """As many as the population has at each rung."""
    count = 1 + (rungs.max - 1) // (rungs.every or 1)  # without the list: there may be a billion
    trials = population * count
    told = asked.get("trials", trials)
    if trials > _MOST_TRIALS:
        message = (
            f"{count:,} rungs of {population:,} trials are {trials:,} trials, accepted are at most {_MOST_TRIALS:,}"
        )
        findings.add("sweep.rungs", message, accepted="a larger every, a smaller max or a smaller population")
    elif told != trials:
        accepted = f"{trials:,}, which is population ({population:,}) times rungs ({count:,})"
        findings.add("sweep.trials", f"expected {accepted}, found {told:,}; leave it out", accepted=accepted)
    return trials


def _enough_trials(asked: dict[str, Any], search: str, rungs: Rungs, findings: Findings) -> int:
    """So many that a trial reaches the last rung."""
    above = len(rungs.ends) - 1
    least = rungs.reduction**above if search == "asha" else above + 1
    if least > _MOST_TRIALS:
        accepted = "a larger min or reduction, or a smaller max"
        findings.add("sweep.rungs", f"one of {least:,} trials would reach the last rung: accepted is {accepted}")
    trials: int = asked.get("trials", max(least, _TRIALS))
    if trials < least <= _MOST_TRIALS:
        accepted = f"a whole number from {least:,}, so that a trial reaches the last rung"
        findings.add("sweep.trials", f"expected {accepted}, found {trials:,}", accepted=accepted)
    return trials


def _check_variable(name: str, where: str, named: dict[str, str], findings: Findings) -> None:
    if (other := named.setdefault(variable(name), name)) != name:
        findings.add(where, f"has the same environment variable as {other!r}, {variable(name)}: rename one of them")


def _check_search(search: str, parameters: dict[str, SweepParameter], findings: Findings) -> None:
    for name, parameter in parameters.items():
        where = f"sweep.parameters.{name}"
        if search == "grid" and not findings.has(where) and parameter.points is None:
            accepted = "a list of values, int, or uniform with step"
            findings.add(where, f"the search grid can't try each value of a range: accepted is {accepted}")
        if search == "cmaes" and parameter.kind == "values":
            accepted = "uniform, log, int or int_log"
            findings.add(where, f"the search cmaes moves in ranges, and this is a list: accepted is {accepted}")


def _references(values: dict[str, Any], findings: Findings) -> None:
    """Check that each ``${sweep.NAME}`` names a parameter."""
    sweep, given = values.get("sweep"), values.get("parameters")
    asked = sweep.get("parameters") if isinstance(sweep, dict) else given
    known = list(asked) if isinstance(asked, dict) else []
    rungs = sweep.get("rungs") if isinstance(sweep, dict) else None
    if isinstance(rungs, dict) and isinstance(rungs.get("parameter"), str):
        known.append(rungs["parameter"])
    if findings.has("sweep.parameters", "sweep.rungs", "parameters"):
        return
    framework = values.get("framework")
    texts = {"framework.command": framework.get("command", "") if isinstance(framework, dict) else ""}
    env = values.get("env")
    texts |= {f"env.{name}": text for name, text in env.items()} if isinstance(env, dict) else {}
    for path, text in texts.items():
        for name in dict.fromkeys(REFERENCE.findall(text)):
            if name not in known:
                accepted = f"a parameter ({', '.join(known)})" if known else "a name in sweep.parameters or parameters"
                hint = did_you_mean(name, known)
                findings.add(path, f"${{sweep.{name[:80]}}} names no parameter{hint}", accepted=accepted)


def refuse_sweep(parsed: ParsedManifest, message: str) -> None:
    """Raise ManifestError with ``message`` if the manifest has a sweep, where a manifest of one job is needed."""
    if parsed.manifest.sweep is not None:
        line, column = parsed.position("sweep")
        raise ManifestError([Problem("sweep", message, line, column=column)])


def check_values(values: dict[str, Value], findings: Findings) -> None:
    """Check the ``parameters`` of a job."""
    named: dict[str, str] = {}
    for name in values:
        _check_variable(name, f"parameters.{name}", named, findings)
