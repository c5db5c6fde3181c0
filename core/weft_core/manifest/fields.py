"""Every field of the manifest, once: the parser and the JSON schema for editors both use these."""

from __future__ import annotations

import re
from typing import get_args
from urllib.parse import urlsplit

from weft_core.lifecycle.states import JobState
from weft_core.manifest.environment import reserved
from weft_core.manifest.kinds import (
    Choice,
    Command,
    Duration,
    Field,
    Flag,
    ListOf,
    MapOf,
    Number,
    Section,
    Size,
    Text,
    Whole,
)
from weft_core.manifest.models import Ending
from weft_core.manifest.schedules import ON, SCHEDULE
from weft_core.manifest.sweep_fields import PARAMETERS, SWEEP
from weft_core.requirements import check_requirement
from weft_core.rules import ACCEPTED, LONGEST, parse_condition

FRAMEWORKS = ("tensorflow", "keras", "pytorch", "horovod", "ray", "python", "custom")
"""What ``framework.name`` accepts; which of them has an image is the catalogue's affair."""
FFDL_FRAMEWORKS = ("caffe", "caffe2", "h2o3", "pytorchmpi")
"""Names that are refused with advice on what to use instead."""

_DAY = 86400.0
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_EMAIL = r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?"
_ENVIRONMENT_NAME = "[A-Za-z_][A-Za-z0-9_]{0,127}"


def _printable(text: str) -> str | None:
    return None if text.isprintable() else "expected printable characters, found others"


def _url(text: str) -> str | None:
    """Its messages never quote the URL: it may hold a password, and the URL of a webhook is a secret."""
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


def _repository(text: str) -> str | None:
    wrong = _url(text)
    if not wrong and (urlsplit(text).query or urlsplit(text).fragment):
        return "a URL with '?' or '#' in it is no address of a repository"
    return wrong


def _ref(text: str) -> str | None:
    """As git has it (check-ref-format)."""
    wrong = re.search(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|^[-/]|[./]$", text)
    return "not the name of a branch or tag" if wrong else None


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
    return _brackets(text)


def _code(text: str) -> str | None:
    if text.startswith(("/", "~", "$", "./")):
        return "expected a path relative to the folder of the code"
    return _prefix(text)


def _requirements(text: str) -> str | None:
    if not text.endswith((".txt", ".in", "pyproject.toml", "uv.lock")):
        return "expected a requirements.txt, a pyproject.toml or a uv.lock"
    return _code(text)


def _result(text: str) -> str | None:
    if text.startswith(("/", "~", "$")):
        return "expected a pattern relative to the folder of the code; what is in RESULT_DIR is stored in any case"
    if text.startswith("./"):
        return f"expected a pattern relative to the folder of the code: write {text.removeprefix('./')!r}"
    if ".." in text.split("/"):
        return "expected a pattern without '..': files outside the folder of the code are not stored"
    return _prefix(text) or _brackets(text)


def _brackets(text: str) -> str | None:
    if text.count("[") != text.count("]"):
        return "expected a ']' for each '['"
    return None


def _condition(text: str) -> str | None:
    try:
        parse_condition(text)
    except ValueError as error:
        return str(error)
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
_PREFIX = Text("a path in the container", most=900, check=_prefix)
_MODEL = Text(
    "NAME@VERSION, a model of the registry and its version's number, its stage or latest",
    pattern=rf"{_NAME}@[A-Za-z0-9._-]{{1,63}}",
)
_PATTERNS = ListOf(
    Text("a pattern such as '*.jpg' or 'train/**/*.tar'", most=900, check=_glob), "a list of patterns", 64, single=True
)
_TRAINING_DATA = {
    "container": Field(
        _CONTAINER,
        "The bucket that holds the data. For a `mount_volume`: a folder below `connection.path`.",
        required=True,
    ),
    "prefix": Field(_PREFIX, "A path in the container: a folder, or a single object. Without it: the whole container."),
    "mode": Field(
        Choice("download", "stream"),
        "How the data reaches the program. `download` puts all objects into `DATA_DIR` before the command starts. With "
        "`stream`, the program reads the objects from the store while it trains.",
    ),
    "include": Field(_PATTERNS, "Only objects whose path below `prefix` matches one of these patterns."),
    "exclude": Field(_PATTERNS, "Leaves out objects whose path below `prefix` matches one of these patterns."),
    "shard": Field(
        Choice("none", "learner"),
        "Which objects each learner gets. `none`: all. `learner`: its own share; not possible in an elastic job.",
    ),
}
_RESULTS = {
    "container": Field(
        _CONTAINER,
        "The bucket for the results and checkpoints. For a `mount_volume`: a folder below `connection.path`, which "
        "gets a copy of the results.",
    ),
    "prefix": Field(_PREFIX, "A path in the container. The job's own folder, named after its id, is below it."),
    "model": Field(
        Text("the name of a model, without a version: its number is given when the job has completed", pattern=_NAME),
        "When the job has completed, its results become the next version of this model. Without a container, the "
        "results stay in Weft's own store.",
    ),
}
_WHEELS = {
    "container": Field(_CONTAINER, "The bucket that holds the wheels.", required=True),
    "prefix": Field(_PREFIX, "A path in the container: a folder, or a single wheel."),
}
# A pretrained model's container may be replaced by `model`.
_PRETRAINED = {
    "container": Field(_CONTAINER, "The bucket that holds the pretrained model."),
    "prefix": Field(_PREFIX, "A path in the container: a folder, or a single object."),
    "model": Field(_MODEL, "A version of a model in the registry, instead of a container and a prefix."),
}

_CONNECTION = Section(
    {
        "auth_url": Field(
            Text("the URL of the store", most=2000, check=_endpoint, sensitive=True),
            "The URL of the S3 endpoint. Required for S3.",
        ),
        "user_name": Field(
            Text("the access key", most=1024, sensitive=True), "The access key (its ID). Required for S3."
        ),
        "password": Field(Text("the secret key", most=4096, sensitive=True), "The secret key. Required for S3."),
        "session_token": Field(
            Text("a session token", most=16384, sensitive=True), "The session token of temporary S3 credentials."
        ),
        "ca": Field(
            Text("PEM text", most=65536, check=_certificates),
            "Certificates of a private authority that Weft trusts for this data store, in addition to the system's.",
        ),
        "region": Field(
            Text("a region", pattern="[A-Za-z0-9-]{1,63}"), "The region of the buckets. Some stores require it."
        ),
        "domain_name": Field(Text("a domain name", check=_printable), "Has no effect; accepted for manifests of FfDL."),
        "project_id": Field(Text("a project id", check=_printable), "Has no effect; accepted for manifests of FfDL."),
        "type": Field(
            Text("the data store's type again, or host_mount", pattern="[A-Za-z0-9_-]+"),
            "Has no effect; accepted for manifests of FfDL, which write `host_mount` for a `mount_volume`.",
        ),
        "name": Field(
            Text("the name of the volume", check=_printable),
            "Has no effect; accepted for manifests of FfDL, which name a `mount_volume` so.",
        ),
        "path": Field(
            Text("an absolute path on the nodes", most=1024, check=_absolute),
            "The folder of a `mount_volume`, on the machine that the learners run on. Required for `mount_volume`.",
        ),
    },
    sensitive=True,
)

_DATA_STORE = Section(
    {
        "id": Field(
            Text("an id of letters, digits, '.', '_' and '-'", pattern=_NAME),
            "A name for the data store within this manifest. Error messages, `weft run --data` and `Stream` use it.",
        ),
        "type": Field(
            Choice("s3", "mount_cos", "s3_datastore", "mount_volume"),
            "The kind of data store: `mount_volume` is a folder of the machine that the learners run on, for engines "
            "of type local; all other values mean S3.",
        ),
        "connection": Field(
            _CONNECTION,
            "The address of the data store, and the credentials for it. Weft encrypts the credentials as soon as they "
            "arrive, and never shows them again.",
        ),
        "datastore": Field(
            Text("the name of a data store kept on the server", pattern=_NAME),
            "The name of a data store whose address and credentials the server keeps (`weft datastores list`), instead "
            "of `connection`.",
        ),
        "training_data": Field(Section(_TRAINING_DATA), "The training data, which learners find in `DATA_DIR`."),
        "training_results": Field(
            Section(_RESULTS),
            "Where the contents of `RESULT_DIR` and the checkpoints are stored, and the model that the results become "
            "a version of. Only one data store of a manifest can have it.",
        ),
        "pretrained_model": Field(
            Section(_PRETRAINED),
            "A pretrained model, which learners find in `PRETRAINED_DIR`. Only one data store of a manifest can have "
            "it.",
        ),
        "wheels": Field(
            Section(_WHEELS),
            "Wheels (`*.whl`) in the store. `framework.packages` and `framework.requirements` name the packages that "
            "are installed from them.",
        ),
        "model": Field(
            _MODEL,
            "A version of a model in the registry, which learners find in `PRETRAINED_DIR`. The same as "
            "`pretrained_model: {model: …}`.",
        ),
    }
)

_INDEX = Section(
    {
        "url": Field(
            Text(
                "the URL of an index, such as https://packages.example.com/simple",
                most=2000,
                check=_url,
                sensitive=True,
            ),
            "The index's URL (PEP 503). A package that it has is never taken from another index.",
            required=True,
        ),
        "secret": Field(
            Text("the name of a secret", pattern=_NAME),
            "The name of a secret that the server keeps (`weft secrets set`), with `user:password` or a token.",
        ),
    }
)

_REPOSITORY = Section(
    {
        "url": Field(
            Text(
                "the URL of a repository, such as https://github.com/team/project.git",
                most=2000,
                check=_repository,
                sensitive=True,
            ),
            "The URL of the repository, as `git clone` takes it by https. It has no user name and no password in it.",
            required=True,
        ),
        "ref": Field(
            Text("a branch, a tag or a whole commit id", most=255, check=_ref),
            "A branch, a tag, or a commit id of 40 digits. The job is pinned to the commit that it means at submit.",
        ),
        "secret": Field(
            Text("the name of a secret", pattern=_NAME),
            "For a private repository: the name of a secret that the server keeps (`weft secrets set`), with "
            "`user:password` or a token.",
        ),
        "path": Field(
            Text("a folder of the repository", most=900, check=_code),
            "The folder of the repository that becomes the folder of the code. Learners get nothing outside of it.",
        ),
    },
    sensitive=True,  # for `repo: https://user:password@…`
)

_FRAMEWORK = Section(
    {
        "name": Field(
            Choice(*FRAMEWORKS, synonyms={name: name for name in FFDL_FRAMEWORKS}),
            "The framework that the command needs. It selects an image of the catalogue; `custom` is an image of your "
            "own.",
            required=True,
        ),
        "version": Field(
            Text("a version", most=512, check=_printable),
            "The version of the catalogue's image, in full or only its beginning (`2.13`), or `latest`. For `custom`: "
            "the full image reference; on engines of type local, the absolute path of a virtual environment.",
        ),
        "launcher": Field(
            Choice("auto", "none", "horovod", "torchrun", "tensorflow", "ray", "slurm"),
            "The program that starts the processes of the learners and lets them find each other. `none` starts the "
            "command once in each learner. `slurm` starts it once, as a Slurm batch script, whose `srun` starts tasks "
            "in all learners. `auto` is the default launcher of the image.",
        ),
        "command": Field(
            Command(), "The command that trains. It is run by bash, in the folder of the code.", required=True
        ),
        "packages": Field(
            ListOf(
                Text("a requirement such as transformers==4.57.*", most=500, check=check_requirement, sensitive=True),
                "a list of requirements such as transformers==4.57.*",
                200,
                single=True,
            ),
            "Python packages that the job needs besides those of the image, as `pip install` takes them.",
        ),
        "requirements": Field(
            Text(
                "the path of a requirements.txt, pyproject.toml or uv.lock in the code", most=900, check=_requirements
            ),
            "A file of the code that lists packages: a `requirements.txt`, a `pyproject.toml` (its dependencies) or a "
            "`uv.lock` (with the `pyproject.toml` beside it).",
        ),
        "wheels": Field(
            ListOf(
                Text("a pattern such as wheels/*.whl", most=900, check=_code), "a list of patterns", 64, single=True
            ),
            "Wheels in the code, by patterns. `packages` and `requirements` name what is installed from them.",
        ),
        "index": Field(_INDEX, "A private index of packages, which comes before the indexes of the installation."),
        "image_tag": Field(Text("an image tag", check=_printable), "Has no effect; accepted for manifests of FfDL."),
    }
)

_EXTRACTED = MapOf(
    Section(
        {
            "type": Field(
                Choice("STRING", "JSONSTRING", "INT", "FLOAT"),
                "How the text is read. Only `INT` and `FLOAT` have a curve.",
                required=True,
            ),
            "value": Field(
                Text("$group, or a constant", most=1024),
                "A group of the expression, as `$NAME`, or a constant.",
                required=True,
            ),
        }
    ),
    "a mapping of names to {type, value}",
    64,
)
_GROUP = Section(
    {
        "regex": Field(
            Text("a regular expression", most=4096),
            "A regular expression of Python's, matched from the beginning of a line. Its named groups, such as "
            "`(?P<loss>…)` or the macro `%{FLOAT:loss}`, are the values to use below.",
            required=True,
        ),
        "meta": Field(
            Section(
                {
                    "time": Field(
                        Text("$group", most=255),
                        "The group of the expression that holds the time, or a constant. Without it, the time at which "
                        "the line was printed counts.",
                    )
                }
            ),
            "When the values were measured.",
        ),
        "scalars": Field(_EXTRACTED, "The metrics: the name of each, and where its value stands."),
        "etimes": Field(_EXTRACTED, "The position in the training: `iteration` is the step of the values."),
    }
)
_METRICS = Section(
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
            "Where else to find metrics. `logger`: nowhere. `regex_extractor`: in the log, by regular expressions. "
            "`tensorboard`: in the event files of the folder `in`. `emetrics_file`: in FfDL's evaluation-metrics.txt.",
            null_counts=True,
        ),
        "image_tag": Field(Text("an image tag", check=_printable), "Has no effect; accepted for manifests of FfDL."),
        "in": Field(
            Text("a path", most=1024, check=_printable),
            "With `tensorboard`, the folder of the event files; with `emetrics_file`, the file. It must be inside the "
            "learner's folders. Variables such as `$JOB_STATE_DIR` are replaced.",
        ),
        "line_lookahead": Field(
            Whole(1, 1000), "With `regex_extractor`: the most lines that one match of an expression can cover."
        ),
        "eventTypes": Field(
            ListOf(Text("an event type", check=_printable), "a list of event types", 32),
            "Has no effect; accepted for manifests of FfDL.",
        ),
        "event_types": Field(
            ListOf(Text("an event type", check=_printable), "a list of event types", 32),
            "The same as `eventTypes`.",
        ),
        "groups": Field(
            MapOf(_GROUP, "a mapping of labels to {regex, meta, scalars, etimes}", 64),
            "For each group of metrics, the expression that finds its values in the log. `regex_extractor` requires "
            "it; the other types ignore it.",
        ),
    }
)

_TARGET = Section(
    {
        "url": Field(
            Text("a URL", most=2000, check=_url, sensitive=True),
            "The URL that gets a POST request. With the format `slack`, a `secret` can hold the URL instead.",
        ),
        "email": Field(
            Text("an e-mail address", most=254, pattern=_EMAIL),
            "The e-mail address that gets a message, instead of `url`. The server's settings must name an SMTP server.",
        ),
        "on": Field(
            ListOf(Choice(*JobState), "a list of states", 8, single=True),
            "The states of the job that are reported. An empty list: only what `rules` report.",
        ),
        "format": Field(
            Choice("json", "slack"),
            "The body of the request to `url`: Weft's own JSON, or a message for Slack (and for servers that take "
            "Slack's form, such as Mattermost).",
        ),
        "secret": Field(
            Text("the name of a secret", pattern=_NAME),
            "The name of a secret that the server keeps (`weft secrets set`). With the format `json`, its value signs "
            "the requests, by HMAC. With the format `slack`, its value is the URL.",
        ),
    }
)

_AFTER = Section(
    {
        "job": Field(
            Text("the id of a job", most=100, pattern=r"job-[a-z0-9]+"),
            "The id of a job of the project.",
            required=True,
        ),
        "on": Field(
            Choice(*get_args(Ending)),
            "How that job must end: `completed` (the default), `failed` (FAILED), or `ended` (in any way).",
        ),
    },
    accepted="the id of a job, or a mapping with job and on",
    alone="job",
)

_RULE = Section(
    {
        "when": Field(
            Text(ACCEPTED, most=LONGEST, check=_condition),
            "The condition. `log /REGEX/`: a line of the log matches the regular expression (of RE2). `metric NAME is "
            "nan`, `metric NAME > NUMBER`, `metric NAME < NUMBER`: a value of the metric. `no step for DURATION`: the "
            "program has reported no metric for this time.",
            required=True,
        ),
        "then": Field(
            ListOf(Choice("notify", "halt"), "notify, halt, or [notify, halt]", 8, single=True),
            "`notify` sends a message to all targets of `notify`, whatever their `on` is. `halt` halts the job, as "
            "`weft halt` does.",
            required=True,
        ),
    }
)

MANIFEST = Section(
    {
        "name": Field(
            Text("a name of 1 to 63 printable characters", most=63, pattern=".+", check=_printable),
            "The name of the job. Several jobs can have the same name.",
            required=True,
        ),
        "description": Field(Text(most=16384), "A text about the job. `weft list --q` also searches descriptions."),
        "version": Field(
            Text("a version", check=_printable),
            "Your own version number for this manifest. Weft keeps it with the job and does not interpret it.",
        ),
        "labels": Field(
            MapOf(Text(check=_printable), "a mapping of names to texts", 64, check_key=_printable),
            "Names and values by which jobs can be selected, for example with `weft list --label team=vision`.",
        ),
        "engine": Field(
            Text("an engine", pattern=_NAME),
            "Where the job runs: the name of an engine in the server's settings, or a type (`local`, `kubernetes`, "
            "`ray`) if only one engine is of this type.",
        ),
        "priority": Field(
            Whole(0, 100), "Jobs of a project with a higher priority go before its other jobs in the queue."
        ),
        "learners": Field(
            Whole(1, 1024),
            "The number of learners. `cpus`, `gpus`, `memory` and `storage` are the sizes of each learner.",
        ),
        "elastic": Field(
            Section(
                {
                    "min": Field(
                        Whole(1, 1024),
                        "The fewest learners with which the job starts and continues, at most `learners`.",
                        required=True,
                    ),
                    "max": Field(
                        Whole(1, 1024), "The most learners that the job can have, at least `learners`.", required=True
                    ),
                }
            ),
            "Makes the job elastic: it continues when learners are lost, and gets more learners when there is room. "
            "Requires the launcher horovod, torchrun or ray.",
        ),
        "profile": Field(
            Text("a profile", pattern=_NAME),
            "A named size from the server's settings, instead of `cpus`, `gpus`, `gpu_type` and `memory`. It can also "
            "restrict which nodes the learners run on.",
        ),
        "cpus": Field(Number(1024), "The CPUs of each learner."),
        "gpus": Field(Whole(0, 1024), "The GPUs of each learner."),
        "gpu_type": Field(
            Text("a type of GPU", check=_printable),
            "The type of the GPUs: one or more whole words of its name, such as `A100` for NVIDIA-A100-SXM4-40GB. It "
            "has no effect on learners without GPUs.",
        ),
        "memory": Field(Size(), "The memory of each learner."),
        "storage": Field(
            Size(),
            "The disk space of each learner. On Kubernetes, a learner that uses more is evicted. The other engines do "
            "not limit the disk.",
        ),
        "framework": Field(_FRAMEWORK, "The environment that the learners run in, and the command.", required=True),
        "repo": Field(
            _REPOSITORY,
            "A git repository that has the code, instead of a folder or zip that is sent with the manifest. Each "
            "learner fetches one commit of it.",
        ),
        "data_stores": Field(
            ListOf(_DATA_STORE, "a list of data stores", 32),
            "Where training data and pretrained models come from, and where results go.",
        ),
        "checkpoint": Field(
            Section(
                {
                    "every": Field(
                        Duration(1, 30 * _DAY), "The interval at which the contents of `CHECKPOINT_DIR` are stored."
                    ),
                    "keep": Field(
                        Whole(1, 1000),
                        "The number of checkpoints that are kept. A job with several learners keeps at least two.",
                    ),
                }
            ),
            "How often the contents of `CHECKPOINT_DIR` are stored, and how many checkpoints are kept.",
        ),
        "stall": Field(
            Section(
                {
                    "after": Field(
                        Duration(1, 30 * _DAY),
                        "How long all running learners must have been idle: no log line, and no work of CPU or GPU.",
                    ),
                    "action": Field(
                        Choice("warn", "end", "fail", "ignore"),
                        "The reaction. `warn`: a warning event, a verdict, and the stacks of all processes in the "
                        "log. `end`: the same, and then the attempt fails, which uses up one of the `retries`. `fail`: "
                        "the same, but without a retry. `ignore`: nothing.",
                    ),
                }
            ),
            "The reactions to a job that makes no progress. Without this key, the server's settings decide.",
        ),
        "after": Field(
            ListOf(_AFTER, "a list of jobs", 64, single=True),
            "The jobs that must end before this job starts: ids, or `{job, on}`. The job waits in its queue and holds "
            "no room. If one of them ends otherwise, the job fails without having started. A job that is HALTED may be "
            "resumed, so only `on: ended` takes that for an end.",
        ),
        "retries": Field(
            Whole(0, 100),
            "How often the job starts again from its last checkpoint after an attempt has failed. Attempts that the "
            "platform ends do not count.",
        ),
        "max_runtime": Field(
            Duration(1, 365 * _DAY),
            "The longest time that an attempt may run after all of its learners have started. An attempt that takes "
            "longer ends the job as FAILED, without a retry.",
        ),
        "keep_on_failure": Field(
            Duration(1, _DAY),
            "How long learners whose command has failed stay for a look inside (`weft shell`), with their room, when "
            "no retry is left. `weft halt` ends it earlier. Not for elastic jobs.",
        ),
        "env": Field(
            MapOf(
                Text(most=32768, verbatim=True, sensitive=True),
                "a mapping of names to values",
                256,
                key=_ENVIRONMENT_NAME,
                key_accepted="a name of letters, digits and '_'",
                check_key=reserved,
            ),
            "Environment variables of the command. Variables that Weft or the launcher sets are refused.",
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
            "Environment variables whose values are secrets that the server keeps (`weft secrets set`): the name of "
            "each variable, and the name of its secret.",
        ),
        "identity": Field(
            Section(
                {
                    "audience": Field(
                        Text("the audience of the token", most=200, pattern=r"[\x21-\x7e]+"),
                        "The claim `aud` of the token: the name by which the verifier knows itself.",
                        required=True,
                    ),
                    "subject": Field(
                        Choice("job", "project"),
                        "The claim `sub`: `job` is `project:ID:job:ID`, `project` is `project:ID`.",
                    ),
                }
            ),
            "A token of OpenID Connect for each learner, by which clouds know the job without stored credentials. "
            "`WEFT_ID_TOKEN_FILE` names its file, and the agent renews it.",
        ),
        "results": Field(
            ListOf(
                Text("a pattern such as 'model.pt' or 'out/**'", most=900, check=_result),
                "a list of patterns",
                64,
                single=True,
            ),
            "Files in the folder of the code that are stored with the contents of `RESULT_DIR`, under the same path. "
            "The patterns are those of `include` in `training_data`.",
        ),
        "keep_leftovers": Field(
            Flag(),
            "Whether the results keep the other files that the program leaves in the folder of the code, below "
            "`workdir/`. The server's settings limit their size.",
        ),
        "evaluation_metrics": Field(
            _METRICS,
            "Where Weft finds metrics in addition to those that it always reads: calls of `log_metrics`, and "
            "TensorBoard event files in the folder of the code, `LOG_DIR` and `RESULT_DIR`.",
        ),
        "notify": Field(
            ListOf(_TARGET, "a list of {url, on} and {email, on}", 16, single=True),
            "Where to send a message when the job enters a state, or when one of its `rules` holds: webhooks, Slack "
            "and e-mail.",
        ),
        "rules": Field(
            ListOf(_RULE, "a list of {when, then}", 32, single=True),
            "Reactions to a line of the log, a metric, or a lack of progress that says that something is wrong. "
            "Each rule fires once, until the job is resumed.",
        ),
        "parameters": Field(
            PARAMETERS,
            "Values for the program: `${sweep.NAME}` in the command and in `env`, the variables `WEFT_SWEEP_NAME`, and "
            "a JSON file that `WEFT_PARAMETERS_FILE` names. A sweep writes this key into the manifest of each trial.",
        ),
        "sweep": Field(
            SWEEP,
            "A search for the best parameters, by many jobs that are alike but for these. `weft sweep` submits such a "
            "manifest.",
        ),
        "schedule": Field(
            SCHEDULE,
            "The times at which a job starts, as cron writes them. `weft schedule create` stores such a manifest.",
        ),
        "on": Field(
            ON,
            "A stage of a model: each promotion to it starts a job. `weft schedule create` stores such a manifest.",
        ),
    },
    accepted="a mapping",
)
