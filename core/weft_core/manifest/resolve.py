"""Checks that need more than one field.

Fields that exclude or need each other, and names that the installation gives a meaning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from weft_core.catalogue import Catalogue, CatalogueError, Image, UnknownVersion
from weft_core.launch import CheckpointSpec, ElasticSpec, Launcher, Resources
from weft_core.manifest.findings import INVALID, Findings
from weft_core.manifest.metrics import resolve_metrics
from weft_core.manifest.models import (
    After,
    Credentials,
    Framework,
    Identity,
    Manifest,
    ParsedManifest,
    Repository,
    Stall,
)
from weft_core.manifest.notifications import resolve_notifications
from weft_core.manifest.problems import did_you_mean, one_of
from weft_core.manifest.schedules import resolve_schedule
from weft_core.manifest.stores import resolve_stores
from weft_core.manifest.sweeps import check_values, resolve_sweep
from weft_core.repositories import COMMIT
from weft_core.requirements import find_conflict
from weft_core.settings import Settings, TimingSettings

# FfDL gave 512 MB and 5 CPUs: too little memory to import today's frameworks, and more CPUs than a laptop has free.
_DEFAULT_MEMORY = 2 << 30
_DEFAULT_CPUS = 1.0
_AS_READ = (
    *("name", "description", "version", "labels", "priority", "learners", "profile", "retries", "env", "secrets"),
    *("results", "keep_leftovers", "parameters"),
)
_SIZES = ("cpus", "gpus", "gpu_type", "memory")
_ELASTIC_LAUNCHERS = ("horovod", "torchrun", "ray")
_NOTHING_INSTALLED = "nothing is installed from here: name packages, by framework.packages or framework.requirements"
_SLURM_NUMBERS = {"SLURM_NTASKS_PER_NODE", "SLURM_CPUS_PER_TASK", "SLURM_GPUS_PER_TASK"}
"""Variables with which a manifest gives the launcher ``slurm`` its defaults for ``srun``."""
_IMAGE_REFERENCE = re.compile(r"[a-z0-9][A-Za-z0-9._:/-]{0,254}(?:@sha256:[0-9a-f]{64})?")


def resolve(
    values: dict[str, Any],
    settings: Settings,
    catalogue: Catalogue,
    findings: Findings,
    known: Mapping[tuple[str, str], Credentials],
) -> ParsedManifest | None:
    """The canonical form of the manifest, or None if ``findings`` has problems."""
    notes: list[str] = []
    engine = _engine(values, settings, findings)
    resources = _resources(values, settings, findings)
    framework = _framework(values, engine, resources, settings, catalogue, findings, notes)
    elastic = _elastic(values, framework, findings)
    if elastic is not None and "keep_on_failure" in values:
        findings.add(
            "keep_on_failure", "an elastic job goes on without a learner that fails: leave keep_on_failure out"
        )
    stores, credentials = resolve_stores(values.get("data_stores", []), findings, known)
    for index, store in enumerate(values.get("data_stores", [])):
        if store is INVALID:
            continue
        if elastic is not None and store.get("training_data", {}).get("shard") == "learner":
            message = (
                "shares of a fixed number of learners don't go with elastic: mode: stream, and split() by the rank"
            )
            findings.add(f"data_stores[{index}].training_data.shard", message, accepted="none")
        installs = framework is None or framework.packages or framework.requirements
        if "wheels" in store and not installs and not findings.problems:
            findings.add(f"data_stores[{index}].wheels", _NOTHING_INSTALLED)
    metrics = resolve_metrics(values.get("evaluation_metrics", {}), findings)
    _environment(values, findings)
    repository = _repository(values, findings)
    targets, rules = resolve_notifications(values, findings)
    identity = _identity(values.get("identity"), settings, findings)
    predecessors = _predecessors(values.get("after", []), findings)
    check_values(values.get("parameters", {}), findings)
    sweep = resolve_sweep(values, findings)
    schedule, promotion = resolve_schedule(values, findings)
    if findings.problems or framework is None:
        return None
    default, checkpoint = CheckpointSpec(), values.get("checkpoint", {})
    manifest = Manifest(
        **{key: values[key] for key in _AS_READ if key in values},
        engine=engine,
        elastic=elastic,
        resources=resources,
        framework=framework,
        repo=repository,
        data_stores=stores,
        checkpoint=CheckpointSpec(
            every_seconds=checkpoint.get("every", default.every_seconds), keep=checkpoint.get("keep", default.keep)
        ),
        after=predecessors,
        stall=_stall(values.get("stall"), settings),
        max_runtime_seconds=values.get("max_runtime"),
        keep_on_failure_seconds=values.get("keep_on_failure"),
        identity=identity,
        evaluation_metrics=metrics,
        notify=targets,
        rules=rules,
        sweep=sweep,
        schedule=schedule,
        on=promotion,
        notes=notes,
    )
    return ParsedManifest(manifest, credentials, findings.position)


def _predecessors(entries: Any, findings: Findings) -> list[After]:
    found: dict[str, After] = {}
    for index, entry in enumerate(entries):
        path = f"after[{index}]" if f"after[{index}]" in findings.nodes else "after"
        if entry is INVALID or findings.has(path):
            continue
        if entry["job"] in found:
            findings.add(path, f"{entry['job']} is named twice", found=entry["job"], accepted="each job once")
        found[entry["job"]] = After(**entry)
    return list(found.values())


def _identity(values: Any, settings: Settings, findings: Findings) -> Identity | None:
    if not isinstance(values, dict):
        return None
    if not settings.identity.issuer:
        findings.add(
            "identity", "this installation issues no identity tokens (the administrator's setting identity.issuer)"
        )
        return None
    if findings.has("identity"):
        return None
    return Identity(**values)


def _engine(values: dict[str, Any], settings: Settings, findings: Findings) -> str:
    name = str(values.get("engine", settings.default_engine))
    if name in settings.engines:
        return name
    of_type = [known for known, engine in settings.engines.items() if engine.type == name]
    if len(of_type) == 1:
        return of_type[0]
    if of_type:
        message = f"several engines are of type {name}: name one of {', '.join(of_type)}"
        findings.add("engine", message, found=repr(name), accepted=one_of(of_type))
    else:
        accepted = one_of(settings.engines)
        hint = did_you_mean(name, tuple(settings.engines))
        findings.add("engine", f"expected {accepted}, found {name!r}{hint}", found=repr(name), accepted=accepted)
    return settings.default_engine


def _resources(values: dict[str, Any], settings: Settings, findings: Findings) -> Resources:
    profile = values.get("profile")
    if profile is not None:
        for key in _SIZES:
            if key in values:
                findings.add(key, f"profile {profile!r} gives this already: leave out either of the two")
        known = settings.profiles.get(profile)
        if known is not None:
            return Resources(
                known.cpus,
                known.gpus,
                known.memory,
                values.get("storage", known.storage),
                known.gpu_type,
                known.extra,
            )
        names = sorted(settings.profiles)
        accepted = one_of(names) if names else "no profile (this installation has none): write cpus, gpus, memory"
        hint = did_you_mean(profile, names)
        findings.add("profile", f"expected {accepted}, found {profile!r}{hint}", found=repr(profile), accepted=accepted)
    if values.get("gpu_type") is not None and values.get("gpus", 0) == 0 and not findings.has("gpus"):
        # FfDL's CPU manifests carry a gpu_type that means nothing; so it does here.
        values = {key: value for key, value in values.items() if key != "gpu_type"}
    return Resources(
        cpus=values.get("cpus", _DEFAULT_CPUS),
        gpus=values.get("gpus", 0),
        memory=values.get("memory", _DEFAULT_MEMORY),
        storage=values.get("storage"),
        gpu_type=values.get("gpu_type"),
    )


def _framework(
    values: dict[str, Any],
    engine: str,
    resources: Resources,
    settings: Settings,
    catalogue: Catalogue,
    findings: Findings,
    notes: list[str],
) -> Framework | None:
    asked = values.get("framework")
    if not isinstance(asked, dict) or "name" not in asked or findings.has("framework.version"):
        return None
    if "image_tag" in asked:
        notes.append("framework.image_tag is FfDL's own and has no effect")
    if asked["name"] == "custom":
        return _custom(asked, engine, settings, findings)
    name, version = asked["name"], asked.get("version")
    try:
        image = catalogue.resolve(name, version, settings.images.aliases)
    except CatalogueError as error:
        path = "framework.version" if isinstance(error, UnknownVersion) and version else "framework.name"
        accepted = one_of(error.accepted)
        findings.add(path, f"{error}: accepted is {accepted}", found=repr(version or name), accepted=accepted)
        return None
    mapped = version is not None and not image.version.startswith(version)
    if mapped:
        notes.append(f"framework version {version} runs on image {image.reference}")
    for at, requirement in enumerate(asked.get("packages", ())):
        if isinstance(requirement, str) and (conflict := find_conflict(requirement, image)):
            findings.add(f"framework.packages[{at}]", conflict, found=repr(requirement))
    return Framework(
        name=name,
        version=version if version and mapped else image.version,
        launcher=_launcher(asked.get("launcher", "auto"), image, values, resources, findings),
        command=asked.get("command", ""),
        image=image.reference,
        **_packages(asked, findings),
    )


def _packages(asked: dict[str, Any], findings: Findings) -> dict[str, Any]:
    """The keys about packages."""
    if findings.problems:
        return {}  # some of them may have no value
    given: dict[str, Any] = {key: asked[key] for key in ("packages", "requirements", "wheels", "index") if key in asked}
    for key in ("wheels", "index"):
        if key in given and not given.keys() & {"packages", "requirements"}:
            findings.add(f"framework.{key}", _NOTHING_INSTALLED)
    return given


def _launcher(
    asked: Launcher | Literal["auto"], image: Image, values: dict[str, Any], resources: Resources, findings: Findings
) -> Launcher:
    if asked != "auto":
        if asked not in image.launchers:
            accepted = one_of(("auto", *image.launchers))
            message = f"image {image.reference} has no launcher {asked!r}: accepted is {accepted}"
            findings.add("framework.launcher", message, found=repr(asked), accepted=accepted)
        return asked
    alone = values.get("learners", 1) == 1 and "elastic" not in values
    return "none" if alone and _runs_alone(image.default_launcher, values, resources) else image.default_launcher


def _runs_alone(launcher: Launcher, values: dict[str, Any], resources: Resources) -> bool:
    """Whether a single learner starts its command without the launcher."""
    if launcher == "torchrun":
        # One process, which many programs recognise by an environment without RANK. The command torchrun itself needs
        # free ports, or two jobs on one machine would use the same ones.
        command = str(values["framework"].get("command", ""))
        return resources.gpus <= 1 and not re.search(r"\btorchrun\b|\btorch\.distributed\b", command)
    return launcher == "tensorflow"  # without TF_CONFIG, it uses its devices with MirroredStrategy


def _custom(asked: dict[str, Any], engine: str, settings: Settings, findings: Findings) -> Framework | None:
    """An image of the user's. On a local engine, that is a virtual environment."""
    if findings.has("engine"):
        return None  # what is accepted depends on it
    version = asked.get("version", "")
    if settings.engines[engine].type == "local":
        accepted = f"the absolute path of a virtual environment (engine {engine!r} is of type local)"
        fits = version.startswith("/") and ".." not in version.split("/")
    else:
        accepted = "an image reference such as registry/team/image:1.0"
        fits = _IMAGE_REFERENCE.fullmatch(version) is not None
    if not fits:
        found = repr(version[:200]) if version else "nothing"
        findings.add("framework.version", f"expected {accepted}, found {found}", found=found, accepted=accepted)
        return None
    launcher = asked.get("launcher", "auto")
    return Framework(
        name="custom",
        version=version,
        launcher="none" if launcher == "auto" else launcher,
        command=asked.get("command", ""),
        image=version,
        **_packages(asked, findings),
    )


def _elastic(values: dict[str, Any], framework: Framework | None, findings: Findings) -> ElasticSpec | None:
    asked = values.get("elastic")
    if asked is None or findings.has("elastic", "learners"):
        return None
    low, high, learners = asked["min"], asked["max"], values.get("learners", 1)
    if not low <= learners <= high:
        accepted = f"min ≤ learners ≤ max (learners is {learners})"
        findings.add("elastic", f"expected {accepted}, found min {low} and max {high}", accepted=accepted)
    if framework is not None and framework.launcher not in _ELASTIC_LAUNCHERS:
        accepted = one_of(_ELASTIC_LAUNCHERS)
        findings.add("elastic", f"launcher {framework.launcher!r} can't be elastic: accepted is {accepted}")
    return ElasticSpec(min=low, max=high)


def _repository(values: dict[str, Any], findings: Findings) -> Repository | None:
    asked = values.get("repo")
    if not isinstance(asked, dict):
        return None
    if findings.problems:
        return None
    ref = asked.get("ref")
    commit = ref.lower() if ref and COMMIT.fullmatch(ref.lower()) else None
    return Repository(
        url=asked["url"],
        ref=commit or ref,
        commit=commit,
        secret=asked.get("secret"),
        path=asked.get("path", "").strip("/"),
    )


def _stall(asked: dict[str, Any] | None, settings: Settings) -> Stall | None:
    if not asked:
        return None
    after = asked.get("after", settings.timings.stall)
    # If the installation checks no job by default, a job that asks for the check without a time gets the usual time.
    return Stall(after_seconds=after or TimingSettings().stall, action=asked.get("action", "warn"))


def _environment(values: dict[str, Any], findings: Findings) -> None:
    framework = values.get("framework")
    if isinstance(framework, dict) and framework.get("launcher") == "slurm":
        for name in _SLURM_NUMBERS & values.get("env", {}).keys():
            if not re.fullmatch(r"[1-9][0-9]{0,5}", found := values["env"][name]):
                accepted = "a whole number from 1"
                findings.add(f"env.{name}", f"expected {accepted}, found {found[:80]!r}", accepted=accepted)
    for name in sorted(set(values.get("env", {})) & set(values.get("secrets", {}))):
        findings.add(f"secrets.{name}", f"{name} is in env as well: leave out either of the two")
    if sum(len(value) for value in values.get("env", {}).values()) > 131072:
        findings.add(
            "env", "more than 131,072 characters in all values together", accepted="at most 131,072 characters"
        )
