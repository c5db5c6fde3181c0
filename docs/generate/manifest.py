"""``manifest.md``: every key of the manifest, from the fields that the parser itself reads by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from docs.generate.manifest_examples import EXAMPLES, WHOLE, complete
from docs.generate.markdown import blocks, code, fenced, sentence, table
from docs.generate.unset import unset_settings

from weft_core.launch import EvaluationMetrics
from weft_core.manifest.fields import FFDL_FRAMEWORKS, MANIFEST
from weft_core.manifest.findings import Findings
from weft_core.manifest.kinds import Choice, Command, Duration, Field, Kind, ListOf, MapOf, Section, Size, Text, join
from weft_core.manifest.models import DataStore, Notify, Schedule, Stall, TrainingData
from weft_core.manifest.parse import parse_manifest
from weft_core.manifest.sweep_fields import Parameter
from weft_core.manifest.tree import Scalar
from weft_core.settings import LimitSettings
from weft_core.words import duration, size

_INTRO = f"""
A manifest describes a job: the command that trains, the framework, the size, where the data comes from and where the
results go. It is a YAML file (JSON works, too) of at most {size(LimitSettings().manifest_bytes)}. `weft init` writes a
first manifest with comments, `weft validate` checks a manifest, and `weft train` submits it.
"""
_RULES = """
## How a manifest is read

- All keys except `name`, `framework.name` and `framework.command` are optional. A key without a value, with `null` or
  with an empty text counts as absent, except in `env`.
- An unknown key is an error, and so is a key that appears twice. `weft validate` and `weft train` report all errors at
  once, each with its line and with the values that are accepted.
- Where a key takes a text, `1.0` and `yes` are texts. Where it takes a number, `2`, `"2"` and `2.0` are the same.
- Words such as `download` are accepted in lower and upper case.
- `--set PATH=VALUE` of `weft train`, `weft validate`, `weft run` and `weft rerun` replaces one value:
  `--set learners=4`, `--set framework.command='python train.py --epochs 1'`,
  `--set data_stores[0].training_data.container=other`. An empty VALUE means the default.
- Manifests of FfDL are valid without changes ([Coming from FfDL](../from-ffdl.md)).

The server gives editors a JSON schema of the manifest, with the texts of this page, at `/api/v1/schema/manifest`. In
editors that use the YAML language server, the schema takes effect with this first line of the manifest:

```yaml
# yaml-language-server: $schema=http://127.0.0.1:8080/api/v1/schema/manifest
```
"""
# Below the meaning of a key: what else there is to know, and where.
_NOTES = {
    "engine": "See [Engines](../engines.md), [the local engine](../local-engine.md), [Kubernetes](../kubernetes.md) "
    "and [Ray](../ray.md).",
    "elastic": "`learners` must be between `min` and `max`. For the program's part, see [Elastic jobs](../elastic.md).",
    "profile": "The administrator defines profiles in the [settings](settings.md#profilesname).",
    "framework": "The images and their launchers: [Images](../images.md).",
    "framework.name": f"FfDL's {', '.join(code(name) for name in FFDL_FRAMEWORKS)} are recognized, and refused with a "
    "message that says what to use instead.",
    "framework.version": "Versions of FfDL's images are mapped to current images, with a note in the job's events.",
    "framework.launcher": "With one learner, `auto` is `none` for TensorFlow and Keras, and for PyTorch with at most "
    "one GPU.",
    "data_stores": "Each entry has exactly one of `connection` and `datastore`, unless it names only models of the "
    "registry. See [S3](../s3.md).",
    "data_stores[].connection.path": "The engine's `host_mounts` must allow the folder: "
    "[the local engine](../local-engine.md#folders-of-this-machine).",
    "data_stores[].training_data.container": "In S3 a container name has no `/`: put the rest into `prefix`.",
    "data_stores[].training_data.include": "The patterns: [which objects](../s3.md#which-objects).",
    "data_stores[].training_data.mode": "See [download](../s3.md#mode-download) and [stream](../s3.md#mode-stream).",
    "data_stores[].training_results": "See [results](../s3.md#results) and [models](../models.md).",
    "data_stores[].training_results.container": "Required, unless `model` is there and the entry names no data store.",
    "data_stores[].pretrained_model": "It has either a `container` or a `model`.",
    "data_stores[].model": "The part after the `@` is a number, a stage, or `latest`: [Models](../models.md).",
    "checkpoint": "How a program writes complete checkpoints: [Checkpoints](../checkpoints.md).",
    "stall": "See [Jobs that make no progress](../stalls.md).",
    "retries": "See [Attempts](../lifecycle.md#attempts).",
    "env": "All values together have at most 131,072 characters. A name cannot be in `env` and in `secrets`.",
    "parameters": "See [what the program gets](../sweeps.md#what-the-program-gets).",
    "sweep": "See [Sweeps](../sweeps.md).",
    "schedule": "See [Schedules](../schedules.md).",
    "on": "See [promotions](../schedules.md#promotions).",
    "sweep.stop": "See [the end](../sweeps.md#the-end).",
    "evaluation_metrics": "See [Metrics](../metrics.md).",
    "evaluation_metrics.groups": "The macros: [From the log](../metrics.md#where-metrics-come-from).",
}


@dataclass(frozen=True)
class Key:
    """A key of the manifest: ``data_stores[].training_data.mode``."""

    path: str
    field: Field

    @property
    def depth(self) -> int:
        return self.path.count(".")


def all_keys(section: Section = MANIFEST, path: str = "") -> Iterator[Key]:
    """All keys, each before those below it."""
    for name, field in section.fields.items():
        key = Key(join(path, name), field)
        yield key
        below = _below(field.kind, key.path)
        if below is not None:
            yield from all_keys(*below)


def page() -> str:
    found = list(all_keys())
    defaults = _defaults()
    rows = [
        (f"[{code(key.path)}](#{anchor(key.path)})", defaults.get(key.path, ""), sentence(key.field.doc))
        for key in found
    ]
    return blocks(
        [
            "# The manifest",
            _INTRO,
            fenced(WHOLE, "yaml"),
            _RULES,
            "## All keys",
            table(("key", "default", "meaning"), rows),
            *(_section(key, defaults.get(key.path, "")) for key in found),
        ]
    )


def anchor(heading: str) -> str:
    """The anchor that code hosts and MkDocs make of a heading in code."""
    return "".join(letter for letter in heading.lower() if letter.isalnum() or letter in "_-")


def _section(key: Key, default: str) -> str:
    return blocks(
        [
            f"{'###' if key.depth or '[' in key.path else '##'} {code(key.path)}",
            key.field.doc,
            _NOTES.get(key.path, ""),
            table(("type", "default"), [(type_in_words(key.field.kind), default or "none")]),
            fenced(EXAMPLES[key.path], "yaml"),
        ]
    )


def _below(kind: Kind, path: str) -> tuple[Section, str] | None:
    """The section that a kind leads to, and the path of its keys."""
    match kind:
        case Section():
            return kind, path
        case ListOf(item=Section() as section):
            return section, f"{path}[]"
        case MapOf(value=Parameter() as parameter):
            return parameter.section, join(path, "NAME")
        case MapOf(value=Section() as section):
            return section, join(path, "LABEL" if path.endswith("groups") else "NAME")
    return None


def type_in_words(kind: Kind) -> str:
    """The values that a key accepts, in words."""
    match kind:
        case Choice():
            return "one of: " + ", ".join(map(code, kind.words)) + _synonyms(kind)
        case Section():
            return "a mapping with " + ", ".join(map(code, kind.fields))
        case ListOf():
            single = "; a single entry needs no list" if kind.single else ""
            items = f"; each entry is {type_in_words(kind.item)}" if isinstance(kind.item, Choice) else ""
            return f"{kind.accepted}, at most {kind.most} entries{single}{items}"
        case MapOf():
            return f"{kind.accepted}, at most {kind.most} entries"
        case Command():
            return f"{kind.accepted} of one line or several, at most {kind.most:,} characters"
        case Text():
            # A pattern has a limit of its own, of which its words tell where it matters.
            return kind.accepted.replace("*", r"\*") + ("" if kind.pattern else f", at most {kind.most:,} characters")
        case Size():
            return f"{kind.accepted}; a number alone is in MB"
        case Duration():
            most = f"{kind.most / 86400:g} days"
            return f"{kind.accepted}, from {duration(kind.least)} to {most}; a number alone is in seconds"
    return kind.accepted


def _synonyms(kind: Choice) -> str:
    """Words that FfDL has for others."""
    meanings = {word: kind.read(Scalar(None, str(word)), "", Findings()) for word in kind.schema()["enum"]}
    found = [f"{code(word)} ({code(meaning)})" for word, meaning in meanings.items() if meaning.lower() != word.lower()]
    return f"; from FfDL also: {', '.join(found)}" if found else ""


def _defaults() -> dict[str, str]:
    """The defaults of keys, as the parser sets them in a manifest without the keys."""
    settings = unset_settings()
    manifest = parse_manifest(complete("notify: {url: https://example.org/hook}"), settings).manifest
    sweep = parse_manifest(complete("sweep: {parameters: {lr: [1]}, metric: loss}"), settings).manifest.sweep
    assert sweep is not None
    required = {key.path: "required" for key in all_keys() if key.field.required}
    training, metrics = TrainingData.model_fields, EvaluationMetrics()
    store = "data_stores[]"
    return required | {
        "engine": "the server's [`default_engine`](settings.md#general)",
        "priority": str(manifest.priority),
        "learners": str(manifest.learners),
        "cpus": f"{manifest.resources.cpus:g}",
        "gpus": str(manifest.resources.gpus),
        "gpu_type": "any type",
        "memory": size(manifest.resources.memory),
        "storage": "no limit",
        "framework.version": "the newest version; required for `custom`",
        "framework.launcher": "`auto`",
        f"{store}.id": "`store-1`, `store-2` and so on, by the position in the list",
        f"{store}.type": code(DataStore.model_fields["type"].default),
        f"{store}.connection.auth_url": "required for S3",
        f"{store}.connection.user_name": "required for S3",
        f"{store}.connection.password": "required for S3",
        f"{store}.connection.path": "required for `mount_volume`",
        f"{store}.training_data.mode": code(training["mode"].default),
        f"{store}.training_data.shard": code(training["shard"].default),
        f"{store}.training_data.include": "all objects",
        f"{store}.training_results": "the installation's own store",
        "checkpoint.every": duration(manifest.checkpoint.every_seconds),
        "checkpoint.keep": str(manifest.checkpoint.keep),
        "stall.after": f"the server's [`timings.stall`](settings.md#timings): {duration(settings.timings.stall)}",
        "stall.action": code(Stall.model_fields["action"].default),
        "retries": str(manifest.retries),
        "max_runtime": "no limit",
        "keep_on_failure": "learners end with their command",
        "evaluation_metrics.type": code(metrics.type),
        "evaluation_metrics.line_lookahead": str(metrics.line_lookahead),
        "evaluation_metrics.groups": "required for `regex_extractor`",
        "schedule.timezone": code(Schedule.model_fields["timezone"].default),
        "schedule.overlap": code(Schedule.model_fields["overlap"].default),
        "sweep.goal": code(sweep.goal),
        "sweep.trials": f"{sweep.trials}; for `grid`, all combinations; for `pbt`, `population` times the rungs",
        "sweep.parallel": str(sweep.parallel),
        "sweep.population": "8, or `parallel` if that is more",
        "sweep.search": code(sweep.search),
        "sweep.stop.failures": str(sweep.stop.failures),
        "sweep.seed": str(sweep.seed),
        "sweep.parameters.NAME.step": "1 for `int`; any number for `uniform`",
        "notify[].format": code(Notify.model_fields["format"].default),
        "notify[].on": ", ".join(code(state.value) for state in manifest.notify[0].on),
    }
