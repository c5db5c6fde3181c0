"""Errors in a manifest are reported all at once, each with its path and line, the value found and the accepted
values."""

from __future__ import annotations

import pytest

from weft_core.engine_settings import KubernetesSettings, LocalSettings, RaySettings
from weft_core.manifest import ManifestError, Problem, parse_manifest
from weft_core.settings import IdentitySettings, ProfileSettings, Settings

SETTINGS = Settings(
    default_engine="here",
    engines={
        "here": LocalSettings(),
        "cluster": KubernetesSettings(),
        "ray-1": RaySettings(),
        "ray-2": RaySettings(),
    },
    profiles={"large": ProfileSettings(cpus=8)},
)
PLAIN = "name: job\nframework: {name: python, command: x}\n"
S = "data_stores[0]"
STORE = "data_stores:\n- id: s\n  connection: {auth_url: 'http://s3', user_name: u, password: p}\n"


def problems(text: str | bytes, **overrides: str) -> list[Problem]:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text, SETTINGS, overrides=overrides)
    assert caught.value.problems
    assert str(caught.value)
    return caught.value.problems


def problem(text: str | bytes, **overrides: str) -> Problem:
    found = problems(text, **overrides)
    assert len(found) == 1, found
    return found[0]


def test_all_at_once_each_with_its_line() -> None:
    text = """
nmae: job
learners: two
priority: 101
framework:
  name: pytorh
  launcher: mpi
data_stores:
- id: a
  type: s4
  connection:
    auth_url: ftp://store
    user_name: u
checkpoint: {every: 5 weeks, kep: 3}
retries: -1
"""
    found = {(entry.line, entry.path): entry for entry in problems(text)}
    assert set(found) == {
        (2, "nmae"),
        (2, "name"),
        (3, "learners"),
        (4, "priority"),
        (6, "framework.command"),
        (6, "framework.name"),
        (7, "framework.launcher"),
        (10, S + ".type"),
        (12, S + ".connection.auth_url"),
        (12, S + ".connection.password"),
        (14, "checkpoint.every"),
        (14, "checkpoint.kep"),
        (15, "retries"),
    }
    learners = found[3, "learners"]
    assert learners == Problem(
        "learners",
        "expected a whole number from 1 to 1024, found 'two'",
        3,
        "'two'",
        "a whole number from 1 to 1024",
        column=11,
    )
    assert str(learners) == "line 3, learners: expected a whole number from 1 to 1024, found 'two'"
    assert "did you mean 'name'?" in found[2, "nmae"].message
    assert "did you mean 'pytorch'?" in found[6, "framework.name"].message
    assert "did you mean 'keep'?" in found[14, "checkpoint.kep"].message


@pytest.mark.parametrize(
    ("line", "path", "words"),
    [
        ("name2: x", "name2", "did you mean 'name'?"),
        ("zzz: x", "zzz", "accepted is one of: name, description"),
        ("description: [x]", "description", "expected text, found a list"),
        ("labels: {a: {b: c}}", "labels.a", "expected text, found a mapping"),
        ("labels: [a]", "labels", "expected a mapping of names to texts, found a list"),
        (f"labels: {{{'k' * 64}: v}}", "labels." + "k" * 64, "1 to 63 characters"),
        (f"labels: {{k: {'v' * 256}}}", "labels.k", "256 characters, accepted are at most 255"),
        ("engine: kubernets", "engine", "expected one of: here, cluster, ray-1, ray-2"),
        ("engine: ray", "engine", "several engines are of type ray: name one of ray-1, ray-2"),
        ("learners: 0", "learners", "found '0'"),
        ("learners: 1.5", "learners", "found '1.5'"),
        ("learners: -1", "learners", "found '-1'"),
        ("learners: 99999999999999999999", "learners", "expected a whole number"),
        ("learners: [1]", "learners", "found a list"),
        ("elastic: {min: 2, max: 4}", "elastic", "min ≤ learners ≤ max (learners is 1)"),
        ("elastic: {min: 1}", "elastic.max", "missing"),
        ("elastic: 3", "elastic", "expected a mapping with min, max, found '3'"),
        ("profile: larg", "profile", "did you mean 'large'?"),
        ("cpus: 0", "cpus", "above 0"),
        ("cpus: .inf", "cpus", "found '.inf'"),
        ("cpus: nan", "cpus", "found 'nan'"),
        ("gpus: 0.5", "gpus", "whole number"),
        ("memory: 1Zb", "memory", "units: mb, mib, gb, gib, tb, tib"),
        ("memory: 2Gi", "memory", "did you mean 2GiB?"),
        ("memory: 0", "memory", "from 1MiB"),
        ("memory: 1e9", "memory", "found '1e9'"),
        ("storage: big", "storage", "found 'big'"),
        ("checkpoint: {every: 0s}", "checkpoint.every", "a duration from 1 s"),
        ("checkpoint: 5m", "checkpoint", "expected a mapping with every, keep"),
        ("max_runtime: 1:30", "max_runtime", "90s, 5m, 1h30m or 2d"),
        ("max_runtime: 5m later", "max_runtime", "90s, 5m, 1h30m or 2d"),
        ("env: {1X: a}", "env.1X", "a name of letters, digits and '_'"),
        ("env: {RANK: 1}", "env.RANK", "reserved"),
        ("env: {WORLD_SIZE: 1}", "env.WORLD_SIZE", "reserved"),
        ("env: {TF_CONFIG: x}", "env.TF_CONFIG", "reserved"),
        ("env: {WEFT_API_URL: x}", "env.WEFT_API_URL", "reserved"),
        ("env: {HOROVOD_RANK: 1}", "env.HOROVOD_RANK", "reserved"),
        ("env: {DATA_DIR: /x}", "env.DATA_DIR", "reserved: Weft sets it in every learner"),
        ("secrets: {MASTER_ADDR: x}", "secrets.MASTER_ADDR", "reserved"),
        ("env: {A: [x]}", "env.A", "expected text, found a list"),
        ("notify: [{on: FAILED}]", "notify[0].url", "missing: expected a URL, or email with an e-mail address"),
        ("notify: {email: ada}", "notify.email", "expected an e-mail address, found 'ada'"),
        ('notify: {email: "a@b.c\\nBcc: x@y.z"}', "notify.email", "expected an e-mail address"),
        ("notify: {email: a@b.c, url: 'http://a'}", "notify.url", "an e-mail has no url"),
        ("notify: {email: a@b.c, format: json}", "notify.format", "an e-mail has no format"),
        ("notify: {format: slack}", "notify", "expected url, or secret with the name of a secret that holds the URL"),
        ("notify: {format: slack, url: 'http://a', secret: b}", "notify", "format slack takes one of both"),
        ("notify: {url: 'http://a', format: teams}", "notify.format", "expected one of: json, slack"),
        ("rules: [{when: loss is nan, then: halt}]", "rules[0].when", "expected log /REGEX/, metric NAME is nan, "),
        ("rules: [{when: metric loss >= 3, then: halt}]", "rules[0].when", "metric NAME > NUMBER, metric NAME < NUM"),
        ("rules: {when: log error, then: halt}", "rules.when", "expected log /REGEX/"),
        ("rules: {when: no step for ages, then: halt}", "rules.when", "no step for DURATION (such as 10m or 1h30m)"),
        ("rules: {when: no step for 5s, then: halt}", "rules.when", "expected a duration from 10s to 30d"),
        ("rules: [{when: log /x/}]", "rules[0].then", "missing: expected notify, halt, or [notify, halt]"),
        ("rules: [{when: log /x/, then: []}]", "rules[0].then", "nothing happens: expected notify, halt, or"),
        ("rules: [{when: log /x/, then: stop}]", "rules[0].then", "expected one of: notify, halt"),
        ("rules: [{when: log /x/, then: notify}]", "rules[0].then", "the manifest has no notify"),
        ("notify: [{url: example.com}]", "notify[0].url", "http:// or https://: did you forget it?"),
        ("notify: [{url: 'http://a', on: [DONE]}]", "notify[0].on[0]", "expected one of: QUEUED"),
        ("evaluation_metrics: {type: regex}", "evaluation_metrics.type", "did you mean 'regex_extractor'?"),
        ("evaluation_metrics: {type: regex_extractor}", "evaluation_metrics.groups", "missing"),
        ("name: again", "name", "a second time, first on line 1"),
    ],
)
def test_one_line_that_is_wrong(line: str, path: str, words: str) -> None:
    found = problems(PLAIN + line)
    assert [entry.path for entry in found][:1] == [path]
    assert words in found[0].message
    assert found[0].line == 3


@pytest.mark.parametrize(
    ("after", "path", "words"),
    [
        ("build", "after", "expected the id of a job, found 'build'"),
        ("[job-a, 7]", "after[1]", "expected the id of a job, found '7'"),
        ("{on: ended}", "after.job", "missing: expected the id of a job"),
        ("[{job: job-a, on: success}]", "after[0].on", "expected one of: completed, failed, ended"),
        ("[job-a, job-b, {job: job-a, on: failed}]", "after[2]", "job-a is named twice"),
    ],
)
def test_jobs_that_must_end_before(after: str, path: str, words: str) -> None:
    found = problem(PLAIN + f"after: {after}\n")
    assert (found.path, words in found.message) == (path, True), found


def test_elastic_needs_a_launcher_that_can() -> None:
    text = "name: x\nframework: {name: tensorflow, command: x}\nlearners: 2\nelastic: {min: 1, max: 2}"
    assert "accepted is one of: horovod, torchrun, ray" in problem(text).message


def test_shares_do_not_go_with_elastic() -> None:
    text = (
        "name: x\nframework: {name: pytorch, command: x, launcher: torchrun}\nlearners: 2\nelastic: {min: 1, max: 2}\n"
    )
    found = problem(text + STORE + "  training_data: {container: a, shard: learner}")
    assert found.path == S + ".training_data.shard"
    assert "don't go with elastic" in found.message


def test_a_profile_excludes_the_sizes_that_it_gives() -> None:
    found = problems(PLAIN + "profile: large\ncpus: 1\ngpus: 0\ngpu_type: a\nmemory: 1Gb\nstorage: 1Gb")
    assert [entry.path for entry in found] == ["cpus", "gpus", "gpu_type", "memory"]


def test_env_and_secrets_exclude_each_other() -> None:
    assert problem(PLAIN + "env: {A: x}\nsecrets: {A: y}").path == "secrets.A"


def test_env_has_a_size() -> None:
    text = PLAIN + "env:\n" + "".join(f"  A{n}: {'x' * 30000}\n" for n in range(5))
    assert "131,072" in problem(text).message


@pytest.mark.parametrize(
    ("framework", "path", "words"),
    [
        ("", "framework", "missing"),
        ("framework: pytorch", "framework", "expected a mapping with name"),
        ("framework: {command: x}", "framework.name", "missing: expected one of: tensorflow, keras"),
        ("framework: {name: python}", "framework.command", "missing: expected a command"),
        ("framework: {name: python, command: ''}", "framework.command", "expected a command"),
        ("framework: {name: caffe, version: cpu, command: x}", "framework.name", "framework.name: custom"),
        ("framework: {name: caffe2, version: x, command: x}", "framework.name", "framework.name: custom"),
        ("framework: {name: h2o3, version: latest, command: x}", "framework.name", "framework.name: custom"),
        ("framework: {name: pytorchmpi, version: 1, command: x}", "framework.name", "use framework pytorch"),
        ("framework: {name: ray, version: 1.0, command: x}", "framework.version", "accepted is one of: 2.60.0"),
        ("framework: {name: pytorch, version: 9.9, command: x}", "framework.version", "accepted is one of: 2.13.0"),
        ("framework: {name: pytorch, version: 2.1, command: x}", "framework.version", "no image has version '2.1'"),
        (
            "framework: {name: pytorch, launcher: horovod, command: x}",
            "framework.launcher",
            "one of: auto, none, torchrun",
        ),
        (
            "framework: {name: python, launcher: slurm, command: x}\nenv: {SLURM_NTASKS_PER_NODE: '0'}",
            "env.SLURM_NTASKS_PER_NODE",
            "expected a whole number from 1, found '0'",
        ),
        (
            "framework: {name: python, launcher: slurm, command: x}\nenv: {SLURM_PROCID: '0'}",
            "env.SLURM_PROCID",
            "SLURM_PROCID is reserved",
        ),
        (
            "framework: {name: python, launcher: slurm, command: x}\nelastic: {min: 1, max: 2}",
            "elastic",
            "launcher 'slurm' can't be elastic",
        ),
        ("framework: {name: custom, command: x}", "framework.version", "absolute path of a virtual environment"),
        ("framework: {name: custom, version: a/b:1, command: x}", "framework.version", "absolute path of a virtual"),
        ("framework: {name: custom, version: /a/../b, command: x}", "framework.version", "absolute path of a virtual"),
        (
            "engine: cluster\nframework: {name: custom, version: 'a b', command: x}",
            "framework.version",
            "an image reference",
        ),
    ],
)
def test_framework(framework: str, path: str, words: str) -> None:
    found = problem("name: x\n" + framework)
    assert found.path == path
    assert words in found.message


@pytest.mark.parametrize(
    ("stores", "path", "words"),
    [
        ("data_stores: {id: a}", "data_stores", "expected a list of data stores, found a mapping"),
        ("data_stores: [x]", "data_stores[0]", "expected a mapping with id, type"),
        ("data_stores: [{id: a}]", S + ".connection", "or datastore: NAME"),
        ("data_stores: [{id: 'a/b', datastore: x}]", S + ".id", "found 'a/b'"),
        (STORE + "  training_data: {}", S + ".training_data.container", "missing"),
        (
            STORE + "  training_data: {container: a, mode: mount}",
            S + ".training_data.mode",
            "download, stream",
        ),
        (
            STORE + "  training_data: {container: a/b}",
            S + ".training_data.container",
            "container: a, prefix: b",
        ),
        (
            STORE + "  training_data: {container: a, prefix: ../b}",
            S + ".training_data.prefix",
            "without '..'",
        ),
        (STORE + "  training_data: {container: a, shard: rank}", S + ".training_data.shard", "none, learner"),
        (
            STORE + "  training_data: {container: a, include: ['*.jpg', /top/*]}",
            S + ".training_data.include[1]",
            "relative to the prefix: write 'top/*'",
        ),
        (
            STORE + "  training_data: {container: a, exclude: 'part-[0-9'}",
            S + ".training_data.exclude",
            "expected a ']' for each '['",
        ),
        (STORE + "  training_data: {container: a, include: {a: b}}", S + ".training_data.include", "a pattern such as"),
        (STORE.replace("password: p", "ca: x, password: p"), S + ".connection.ca", "-----BEGIN CERTIFICATE-----"),
        (STORE + "  datastore: kept", S + ".connection", "leave out either of the two"),
        (STORE + "  model: resnet", S + ".model", "NAME@VERSION"),
        (STORE + "  model: r@1\n  pretrained_model: {container: x}", S + ".model", "leave out either"),
        (
            STORE + "  pretrained_model: {container: x, model: r@1}",
            S + ".pretrained_model",
            "leave out either",
        ),
        (STORE + "  pretrained_model: {}", S + ".pretrained_model", "missing"),
        (STORE + "  training_results: {}", S + ".training_results.container", "missing"),
        (STORE + "  training_results: {model: r}", S + ".training_results.container", "an entry of its own"),
        (STORE + "  training_results: {container: x, model: r@1}", S + ".training_results.model", "without a version"),
        ("data_stores: [{training_results: {model: r, prefix: p}}]", S + ".training_results.prefix", "no container"),
        ("data_stores: [{training_results: {container: x, model: r}}]", S + ".connection", "datastore: NAME"),
        (STORE + "- id: s\n  datastore: kept", "data_stores[1].id", "a second time, first at data_stores[0].id"),
        ("repo: https://git.example.com/x", "repo", "a mapping with url"),
        ("repo: {ref: main}", "repo.url", "missing"),
        ("repo: {url: 'https://me:hidden@example.com/x'}", "repo.url", "a URL with a user name or password in it"),
        ("repo: {url: 'git@example.com:team/x'}", "repo.url", "begins with http:// or https://"),
        ("repo: {url: 'https://example.com/x?token=hidden'}", "repo.url", "is no address of a repository"),
        ("repo: {url: 'https://example.com/x', ref: 'a b'}", "repo.ref", "not the name of a branch or tag"),
        ("repo: {url: 'https://example.com/x', ref: --upload-pack=x}", "repo.ref", "not the name of a branch or tag"),
        ("repo: {url: 'https://example.com/x', path: ../x}", "repo.path", "without '..'"),
        ("repo: {url: 'https://example.com/x', secret: 'a b'}", "repo.secret", "the name of a secret"),
        (STORE.replace("'http://s3'", "s3:80"), S + ".connection.auth_url", "did you forget it?"),
        (STORE.replace("'http://s3'", "'http://[s3'"), S + ".connection.auth_url", "not a URL"),
        (STORE.replace("'http://s3'", "'http://s3:port'"), S + ".connection.auth_url", "not a URL"),
        (STORE.replace("password: p", "path: /x, password: p"), S + ".connection.path", "not accepted"),
        (
            "data_stores: [{type: mount_volume, connection: {name: x}}]",
            S + ".connection.path",
            "type mount_volume needs it",
        ),
        (
            "data_stores: [{type: mount_volume, connection: {path: relative}}]",
            S + ".connection.path",
            "absolute path",
        ),
        ("data_stores: [{type: mount_volume, datastore: x}]", S + ".datastore", "host_mount"),
    ],
)
def test_data_stores(stores: str, path: str, words: str) -> None:
    found = problem(PLAIN + stores)
    assert found.path == path
    assert words in found.message


@pytest.mark.parametrize(
    ("written", "path", "words"),
    [
        ("results: [model.pt, ../up.pt]", "results[1]", "a pattern without '..'"),
        ("results: /data/model.pt", "results", "relative to the folder of the code"),
        ("results: [./out/**]", "results[0]", "write 'out/**'"),
        ("results: ['[a']", "results[0]", "a ']' for each '['"),
        ("results: {a: b}", "results", "a pattern such as 'model.pt'"),
        ("keep_leftovers: maybe", "keep_leftovers", "true or false"),
    ],
)
def test_results(written: str, path: str, words: str) -> None:
    found = problem(PLAIN + written)
    assert (found.path, found.line) == (path, 3)
    assert words in found.message


def test_results_go_to_one_place() -> None:
    store = "- {{datastore: kept, id: {}, training_results: {{container: x}}, pretrained_model: {{container: y}}}}\n"
    found = problems(PLAIN + "data_stores:\n" + store.format("a") + store.format("b"))
    assert [entry.path for entry in found] == ["data_stores[1].training_results", "data_stores[1].pretrained_model"]


@pytest.mark.parametrize(
    ("group", "path", "words"),
    [
        ("{regex: '('}", "regex", "not a regular expression"),
        ("{regex: '%{NUMBER:x}'}", "regex", "no macro %{NUMBER}"),
        (
            "{regex: '%{INT:x}', scalars: {a: {type: INT, value: $y}}}",
            "scalars.a.value",
            "a group of the regex ($x), found '$y'",
        ),
        ("{regex: x, scalars: {a: {type: INT}}}", "scalars.a.value", "missing"),
        ("{regex: x, scalars: {a: {type: DOUBLE, value: 1}}}", "scalars.a.type", "STRING, JSONSTRING, INT, FLOAT"),
        ("{regex: x, meta: {time: $t}}", "meta.time", "(none)"),
        ("{scalars: {}}", "regex", "missing"),
    ],
)
def test_regular_expressions(group: str, path: str, words: str) -> None:
    found = problem(PLAIN + f"evaluation_metrics: {{type: regex_extractor, groups: {{g: {group}}}}}")
    assert found.path == f"evaluation_metrics.groups.g.{path}"
    assert words in found.message


@pytest.mark.parametrize(
    ("key", "value", "path", "words"),
    [
        ("learners", "many", "learners", "found 'many' (given with --set learners)"),
        ("learnres", "2", "learnres", "did you mean 'learners'? (given with --set learnres)"),
        ("data_stores[1].id", "x", "data_stores[1].id", "has 0 entries"),
        ("name[0]", "x", "name[0]", "name is one value, not a list"),
        ("name.x", "x", "name.x", "name is one value, not a mapping"),
        ("framework", "x", "framework", "framework is a mapping: set one of its own values"),
        ("[0].x", "x", "[0].x", "expected a path such as learners"),
        ("a..b", "x", "a..b", "expected a path such as learners"),
        ("", "x", "", "expected a path such as learners"),
        ("data_stores[x]", "1", "data_stores[x]", "expected a path such as learners"),
        ("description", "a\x00b", "description", "control character"),
        ("env.RANK", "1", "env.RANK", "reserved"),
        ("description", "x" * 70000, "description", "70,000 characters"),
    ],
)
def test_set(key: str, value: str, path: str, words: str) -> None:
    found = problem(PLAIN + "data_stores: []", **{key: value})
    assert (found.path, found.line) == (path, None)
    assert words in found.message
    assert "--set" in found.message


def test_very_many_problems_are_cut_short() -> None:
    found = problems(PLAIN + "".join(f"key{n}: x\n" for n in range(1000)))
    assert len(found) == 51
    assert found[-1].message == "and 950 more problems"


@pytest.mark.parametrize(
    ("keys", "path", "message"),
    [
        ("packages: [einops, 'ein ops']", "framework.packages[1]", "not a requirement"),
        (
            "packages: torch==2.5",
            "framework.packages[0]",
            "image pytorch:2.13.0 has torch 2.13.0, which stays: its other parts are built for it",
        ),
        ("packages: 'torch @ https://example.com/torch.whl'", "framework.packages[0]", "which stays"),
        (
            "packages: 'x @ https://me:hidden@example.com/x.whl'",
            "framework.packages",
            "a URL with a user name or password in it: `index: {url: …, secret: …}` keeps them on the server",
        ),
        ("requirements: /tmp/requirements.txt", "framework.requirements", "relative to the folder of the code"),
        ("requirements: ../requirements.txt", "framework.requirements", "without '..'"),
        (
            "requirements: setup.py",
            "framework.requirements",
            "expected a requirements.txt, a pyproject.toml or a uv.lock",
        ),
        ("wheels: wheels/*.whl", "framework.wheels", "nothing is installed from here"),
        ("index: {url: https://example.com/simple}", "framework.index", "nothing is installed from here"),
        ("packages: x, index: {url: 'https://u:p@example.com'}", "framework.index.url", "a user name or password"),
        ("packages: x, index: {secret: s}", "framework.index.url", "missing"),
    ],
)
def test_packages(keys: str, path: str, message: str) -> None:
    found = problem(f"name: job\nframework: {{name: pytorch, command: x, {keys}}}\n")
    assert found.path == path
    assert message in found.message
    assert "hidden" not in str(found)
    assert found.line == 2


@pytest.mark.parametrize(
    ("store", "path", "message"),
    [
        ("datastore: default, wheels: {container: w}", "data_stores[0].wheels", "nothing is installed from here"),
        ("datastore: default, wheels: {prefix: w}", "data_stores[0].wheels.container", "missing"),
        ("datastore: default, wheels: {container: w/x}", "data_stores[0].wheels.container", "container: w, prefix: x"),
        ("wheels: {container: w}", "data_stores[0].connection", "missing: expected connection"),
        (
            "type: mount_volume, connection: {path: /data}, wheels: {container: w}",
            "data_stores[0].wheels",
            "wheels come from S3 or with the code (framework.wheels), not from a mount_volume",
        ),
    ],
)
def test_wheels_of_a_data_store(store: str, path: str, message: str) -> None:
    found = problem(PLAIN + f"data_stores: [{{{store}}}]\n")
    assert found.path == path
    assert message in found.message


@pytest.mark.parametrize(
    "text",
    [
        PLAIN + "repo: {url: 'https://me:hidden@example.com/x'}\n",
        PLAIN + "repo: {url: 'https://me:hidden@[x'}\n",
        PLAIN + "repo: https://me:hidden@example.com/x\n",
        PLAIN.replace("command: x", "command: x, packages: y, index: {url: 'https://me:hidden@example.com/x'}"),
    ],
)
def test_no_password_of_a_repository_or_an_index_is_shown(text: str) -> None:
    assert "hidden" not in repr(problem(text))


def test_identity_tokens() -> None:
    """With them, as an installation that issues none refuses the key itself."""
    found = problem(PLAIN + "identity: {audience: sts.amazonaws.com}\n")
    assert (found.path, found.line) == ("identity", 3)
    assert "identity.issuer" in found.message
    issuing = SETTINGS.model_copy(update={"identity": IdentitySettings(issuer="https://weft.example.com")})
    for text, path in (
        ("{}", "identity.audience"),
        ("{audience: 'two words'}", "identity.audience"),
        ("{audience: x, subject: learner}", "identity.subject"),
    ):
        with pytest.raises(ManifestError) as caught:
            parse_manifest(f"{PLAIN}identity: {text}\n", issuing)
        assert [each.path for each in caught.value.problems] == [path]
