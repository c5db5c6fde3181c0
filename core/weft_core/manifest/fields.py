"""Every field of the manifest, once: what the parser reads and what editors' JSON schema says both come from here."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from weft_core.lifecycle.states import JobState
from weft_core.manifest.environment import reserved
from weft_core.manifest.kinds import Choice, Command, Duration, Field, ListOf, MapOf, Number, Record, Size, Text, Whole

FRAMEWORKS = ("tensorflow", "keras", "pytorch", "horovod", "ray", "python", "custom")
"""What ``framework.name`` accepts; which of them has an image is the catalogue's affair."""
FFDL_FRAMEWORKS = ("caffe", "caffe2", "h2o3", "pytorchmpi")
"""Known, and answered with what to do instead."""

_DAY = 86400.0
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_ENVIRONMENT_NAME = "[A-Za-z_][A-Za-z0-9_]{0,127}"


def _printable(text: str) -> str | None:
    return None if text.isprintable() else "expected printable characters, found others"


def _url(text: str) -> str | None:
    """Never quotes: addresses with a password in them are what is refused here, and webhooks are secrets."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port  # reading the port checks it
    except ValueError:
        return "not a URL"
    if parts.scheme not in ("http", "https") or not host:
        return f"expected a URL that begins with http:// or https://{_scheme_hint(text)}"
    if parts.username is not None or parts.password is not None:
        return "a URL with a user name or password in it, which is not accepted"
    return "a space or control character in a URL" if re.search(r"[\s\x00-\x20]", text) else None


def _scheme_hint(text: str) -> str:
    return ": did you forget it?" if re.fullmatch(r"[A-Za-z0-9.-]+(:[0-9]+)?(/.*)?", text) else ""


def _endpoint(text: str) -> str | None:
    wrong = _url(text)
    if not wrong and (urlsplit(text).query or urlsplit(text).fragment):
        return "a URL with '?' or '#' in it is no address of a store"
    return wrong


def _prefix(text: str) -> str | None:
    if ".." in text.split("/") or not text.isprintable():
        return "expected a path without '..' and control characters"
    return None


def _glob(text: str) -> str | None:
    wrong = _prefix(text)
    if wrong:
        return wrong
    if text.startswith("/"):
        return f"expected a pattern relative to the prefix: write {text.lstrip('/')!r}"
    if text.count("[") != text.count("]"):
        return "expected a ']' for each '['"
    return None


def _certificates(text: str) -> str | None:
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    return None if begin in text and end in text else f"expected PEM text, {begin} … {end}"


def _absolute(text: str) -> str | None:
    return None if text.startswith("/") and not _prefix(text) else "expected an absolute path without '..'"


# FfDL's containers have underscores and capitals, which AWS's rules for buckets don't allow and other stores do. A
# mount_volume's container is a folder, which may be nested.
_CONTAINER = Text(
    "a container name of letters, digits, '.', '_' and '-' (what follows a '/' is the prefix)",
    pattern=r"[A-Za-z0-9][A-Za-z0-9._/-]{0,254}",
    check=_prefix,
)
_PLACE = {
    "container": Field(_CONTAINER, "The bucket.", required=True),
    "prefix": Field(Text("a path in the container", most=900, check=_prefix), "Path in the bucket."),
}
_MODEL = Text(
    "NAME@VERSION, a model of the registry and its version's number, its stage or latest",
    pattern=rf"{_NAME}@[A-Za-z0-9._-]{{1,63}}",
)
_PATTERNS = ListOf(
    Text("a pattern such as '*.jpg' or 'train/**/*.tar'", most=900, check=_glob), "a list of patterns", 64, single=True
)
# A pretrained model's container may be replaced by `model`.
_PRETRAINED = {name: Field(field.kind, field.doc) for name, field in _PLACE.items()} | {
    "model": Field(_MODEL, "A model of the registry, NAME@VERSION, instead of a container."),
}
_RESULTS = {name: Field(field.kind, field.doc) for name, field in _PLACE.items()} | {
    "model": Field(
        Text("the name of a model, without a version: its number is given when the job has completed", pattern=_NAME),
        "The results become this model's next version.",
    ),
}

_CONNECTION = Record(
    {
        "auth_url": Field(Text("the URL of the store", most=2000, check=_endpoint, sensitive=True)),
        "user_name": Field(Text("the access key", most=1024, sensitive=True)),
        "password": Field(Text("the secret key", most=4096, sensitive=True)),
        "session_token": Field(Text("a session token", most=16384, sensitive=True)),
        "ca": Field(
            Text("PEM text", most=65536, check=_certificates), "Certificates of a private authority to trust there."
        ),
        "region": Field(Text("a region", pattern="[A-Za-z0-9-]{1,63}")),
        "domain_name": Field(Text("a domain name", check=_printable)),
        "project_id": Field(Text("a project id", check=_printable)),
        "type": Field(Text("the data store's type again, or host_mount", pattern="[A-Za-z0-9_-]+")),
        "name": Field(Text("the name of the volume", check=_printable)),
        "path": Field(Text("an absolute path on the nodes", most=1024, check=_absolute)),
    },
    sensitive=True,
)

_DATA_STORE = Record(
    {
        "id": Field(
            Text("an id of letters, digits, '.', '_' and '-'", pattern=_NAME), "A name for it in this manifest."
        ),
        "type": Field(Choice("s3", "mount_cos", "s3_datastore", "mount_volume"), "All but mount_volume are S3."),
        "connection": Field(_CONNECTION, "Address and credentials; the latter are kept encrypted."),
        "datastore": Field(
            Text("the name of a data store kept on the server", pattern=_NAME), "Instead of connection."
        ),
        "training_data": Field(
            Record(
                _PLACE
                | {
                    "mode": Field(Choice("download", "stream"), "Fetch before the start, or read while training."),
                    "include": Field(_PATTERNS, "Only objects whose path below the prefix matches one of these."),
                    "exclude": Field(_PATTERNS, "Without objects that match one of these."),
                    "shard": Field(Choice("none", "learner"), "Every learner gets all objects, or a share of its own."),
                }
            ),
            "Goes to DATA_DIR.",
        ),
        "training_results": Field(
            Record(_RESULTS), "Where RESULT_DIR and CHECKPOINT_DIR are kept, and as what they are registered."
        ),
        "pretrained_model": Field(Record(_PRETRAINED), "Goes to PRETRAINED_DIR."),
        "model": Field(_MODEL, "A model of the registry, NAME@VERSION, instead of pretrained_model."),
    }
)

_FRAMEWORK = Record(
    {
        "name": Field(Choice(*FRAMEWORKS, synonyms={name: name for name in FFDL_FRAMEWORKS}), required=True),
        "version": Field(
            Text("a version", most=512, check=_printable), "Of the catalogue; for custom the whole image reference."
        ),
        "launcher": Field(
            Choice("auto", "none", "horovod", "torchrun", "tensorflow", "ray"),
            "How the learners' processes find together.",
        ),
        "command": Field(Command(), "Run by bash in the folder of the code.", required=True),
        "image_tag": Field(Text("an image tag", check=_printable), "FfDL's; the tag of a custom image."),
    }
)

_EXTRACTED = MapOf(
    Record(
        {
            "type": Field(Choice("STRING", "JSONSTRING", "INT", "FLOAT"), required=True),
            "value": Field(Text("$group, or a constant", most=1024), required=True),
        }
    ),
    "a mapping of names to {type, value}",
    64,
)
_METRICS = Record(
    {
        "type": Field(
            Choice(
                "logger",
                "regex_extractor",
                "tensorboard",
                "emetrics_file",
                synonyms={
                    **dict.fromkeys(("none", "null", "nil", "~"), "logger"),
                    "tensorboard_extractor": "tensorboard",
                    "file": "emetrics_file",
                    "optivist": "emetrics_file",
                },
            ),
            null_counts=True,
        ),
        "image_tag": Field(Text("an image tag", check=_printable)),
        "in": Field(Text("a path", most=1024, check=_printable), "What to read, for example $JOB_STATE_DIR/logs/tb."),
        "line_lookahead": Field(Whole(1, 1000)),
        "eventTypes": Field(ListOf(Text("an event type", check=_printable), "a list of event types", 32)),
        "event_types": Field(ListOf(Text("an event type", check=_printable), "a list of event types", 32)),
        "groups": Field(
            MapOf(
                Record(
                    {
                        "regex": Field(Text("a regular expression", most=4096), required=True),
                        "meta": Field(Record({"time": Field(Text("$group", most=255))})),
                        "scalars": Field(_EXTRACTED),
                        "etimes": Field(_EXTRACTED),
                    }
                ),
                "a mapping of labels to {regex, meta, scalars, etimes}",
                64,
            )
        ),
    }
)

MANIFEST = Record(
    {
        "name": Field(
            Text("a name of 1 to 63 printable characters", most=63, pattern=".+", check=_printable), required=True
        ),
        "description": Field(Text(most=16384)),
        "version": Field(Text("a version", check=_printable)),
        "labels": Field(MapOf(Text(check=_printable), "a mapping of names to texts", 64, check_key=_printable)),
        "engine": Field(
            Text("an engine", pattern=_NAME), "local, ray, kubernetes, or a name from the server's settings."
        ),
        "priority": Field(Whole(0, 100), "Higher goes first; default 50."),
        "learners": Field(Whole(1, 1024), "How many; the sizes below are for each."),
        "elastic": Field(
            Record({"min": Field(Whole(1, 1024), required=True), "max": Field(Whole(1, 1024), required=True)}),
            "Learners may come and go between these.",
        ),
        "profile": Field(Text("a profile", pattern=_NAME), "A named size, instead of cpus, gpus, gpu_type and memory."),
        "cpus": Field(Number(1024)),
        "gpus": Field(Whole(0, 1024)),
        "gpu_type": Field(Text("a type of GPU", check=_printable)),
        "memory": Field(Size()),
        "storage": Field(Size()),
        "framework": Field(_FRAMEWORK, "What runs.", required=True),
        "data_stores": Field(ListOf(_DATA_STORE, "a list of data stores", 32), "Where data comes from and results go."),
        "checkpoint": Field(
            Record({"every": Field(Duration(1, 30 * _DAY)), "keep": Field(Whole(1, 1000))}),
            "How often CHECKPOINT_DIR is saved, and how many are kept.",
        ),
        "stall": Field(
            Record({"after": Field(Duration(1, 30 * _DAY)), "action": Field(Choice("warn", "end", "ignore"))}),
            "When all learners have been idle for so long: a warning with their stacks, or the attempt's end, too.",
        ),
        "retries": Field(Whole(0, 100), "How often a failed gang starts again from its checkpoint."),
        "max_runtime": Field(Duration(1, 365 * _DAY)),
        "env": Field(
            MapOf(
                Text(most=32768, verbatim=True, sensitive=True),
                "a mapping of names to values",
                256,
                key=_ENVIRONMENT_NAME,
                key_accepted="a name of letters, digits and '_'",
                check_key=reserved,
            )
        ),
        "secrets": Field(
            MapOf(
                Text("the name of a secret kept on the server", pattern=_NAME, sensitive=True),
                "a mapping of environment names to secrets' names",
                256,
                key=_ENVIRONMENT_NAME,
                key_accepted="a name of letters, digits and '_'",
                check_key=reserved,
            ),
            "Environment from secrets kept on the server.",
        ),
        "evaluation_metrics": Field(_METRICS),
        "notify": Field(
            ListOf(
                Record(
                    {
                        "url": Field(
                            Text("a URL", most=2000, check=_url, sensitive=True), "Gets a POST.", required=True
                        ),
                        "on": Field(ListOf(Choice(*JobState), "a list of states", 8, single=True)),
                    }
                ),
                "a list of {url, on}",
                16,
                single=True,
            )
        ),
    },
    accepted="a mapping",
)
