"""Settings as operators write them: in weft.toml, in the environment, and wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from weft_core.engine_settings import KubernetesSettings, LocalSettings, NodePool, RaySettings
from weft_core.launch import Toleration
from weft_core.manifest import parse_manifest
from weft_core.settings import Settings, load_settings
from weft_core.settings_problems import settings_problems

TOML = """
default_engine = "gpu"

[engines.here]
type = "local"
cpus = 3.5

[engines.gpu]
type = "kubernetes"
context = "prod"
namespace = "weft-{project}"
create_namespaces = true
queue = "team-{project}"
node_selector = { "example.org/pool" = "gpu" }
egress = ["10.0.0.0/8"]
timeout = 5

[[engines.gpu.tolerations]]
key = "nvidia.com/gpu"
operator = "Exists"

[[engines.gpu.autoscaling]]
max = 4
cpus = 8
memory = 68719476736
gpus = 2
gpu_type = "a100"

[engines.ray]
type = "ray"
address = "https://ray.example.org"
token_file = "/run/secrets/ray"
environments = { "pytorch:2.13.0" = "/opt/pytorch/bin/python", "*" = "/usr/bin/python3" }

[profiles.a100x2]
cpus = 8
gpus = 2
gpu_type = "a100"
memory = 68719476736
extra = { "hugepages-2Mi" = 4 }
node_selector = { zone = "b" }
priority_class = "high"
image_pull_secrets = ["registry"]
affinity = { nodeAffinity = { requiredDuringSchedulingIgnoredDuringExecution = { nodeSelectorTerms = [] } } }
tolerations = [{ key = "spot", value = "true", effect = "NoSchedule" }]
"""


Write = Callable[[str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    def write(text: str) -> None:
        file = tmp_path / "weft.toml"
        file.write_text(text)
        monkeypatch.setenv("WEFT_CONFIG", str(file))

    return write


def test_each_type_of_engine_from_the_file(write: Write) -> None:
    write(TOML)
    settings = load_settings()
    here, gpu, ray = (settings.engines[name] for name in ("here", "gpu", "ray"))
    assert here == LocalSettings(cpus=3.5)
    assert isinstance(gpu, KubernetesSettings)
    assert (gpu.context, gpu.namespace, gpu.queue, gpu.timeout) == ("prod", "weft-{project}", "team-{project}", 5.0)
    assert gpu.node_selector == {"example.org/pool": "gpu"}
    assert gpu.tolerations == [Toleration(key="nvidia.com/gpu", operator="Exists")]
    assert gpu.autoscaling == [NodePool(max=4, cpus=8, memory=64 << 30, gpus=2, gpu_type="a100")]
    assert isinstance(ray, RaySettings)
    assert (ray.token_file, ray.environments["*"]) == (Path("/run/secrets/ray"), "/usr/bin/python3")


def test_a_profile_says_the_size_and_the_place(write: Write) -> None:
    write(TOML)
    settings = load_settings()
    profile = settings.profiles["a100x2"]
    assert profile.node_selector == {"zone": "b"}
    assert profile.tolerations == [Toleration(key="spot", value="true", effect="NoSchedule")]
    assert (profile.priority_class, profile.image_pull_secrets) == ("high", ["registry"])
    assert "nodeAffinity" in profile.affinity
    manifest = parse_manifest(
        "name: a\nprofile: a100x2\nframework: {name: pytorch, command: train}\n", settings
    ).manifest
    assert manifest.profile == "a100x2"
    assert (manifest.resources.gpus, manifest.resources.extra) == (2, {"hugepages-2Mi": 4})
    assert "example.org" not in manifest.model_dump_json(), "where it runs is the platform team's, not the manifest's"


def test_each_type_of_engine_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "WEFT_DEFAULT_ENGINE": "k8s",
        "WEFT_ENGINES__HERE__TYPE": "local",
        "WEFT_ENGINES__HERE__GPUS": "2",
        "WEFT_ENGINES__K8S__TYPE": "kubernetes",
        "WEFT_ENGINES__K8S__NETWORK_POLICIES": "false",
        "WEFT_ENGINES__K8S__RUN_AS_USER": "cluster",
        "WEFT_ENGINES__K8S__NODE_SELECTOR": '{"example.org/pool": "gpu"}',
        "WEFT_ENGINES__K8S__TOLERATIONS": '[{"key": "gpu", "operator": "Exists"}]',
        "WEFT_ENGINES__RAY__TYPE": "ray",
        "WEFT_ENGINES__RAY__TOKEN": "hush",
        "WEFT_PROFILES__BIG__CPUS": "8",
        "WEFT_PROFILES__BIG__TOLERATIONS": '[{"key": "gpu"}]',
    }.items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert settings.engines["here"] == LocalSettings(gpus=2)
    k8s, ray = settings.engines["k8s"], settings.engines["ray"]
    assert isinstance(k8s, KubernetesSettings)
    assert (k8s.network_policies, k8s.run_as_user) == (False, None)
    assert k8s.node_selector == {"example.org/pool": "gpu"}
    assert [toleration.key for toleration in k8s.tolerations] == ["gpu"]
    assert isinstance(ray, RaySettings)
    assert ray.token is not None
    assert ray.token.get_secret_value() == "hush"
    assert "hush" not in repr(settings)
    assert [toleration.key for toleration in settings.profiles["big"].tolerations] == ["gpu"]


def test_the_environment_wins_over_the_file_key_by_key(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write(TOML)
    monkeypatch.setenv("WEFT_ENGINES__GPU__CONTEXT", "staging")
    gpu = load_settings().engines["gpu"]
    assert isinstance(gpu, KubernetesSettings)
    assert (gpu.context, gpu.namespace) == ("staging", "weft-{project}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[engines.k]\ntype = "kubernets"',
            "engines.k.type: expected one of: local, ray, kubernetes, found 'kubernets'",
        ),
        ('[engines.k]\nnamespace = "x"', "engines.k.type: missing, expected one of: local, ray, kubernetes"),
        (
            '[engines.k]\ntype = "kubernetes"\nnamspace = "x"',
            "engines.k.namspace: no such key: did you mean 'namespace'?",
        ),
        (
            '[engines.k]\ntype = "local"\nxyz = 1',
            "engines.k.xyz: no such key; there are: cache_dir, cache_size, cpus, gpus, host_mounts, isolation, memory, "
            "reachable, type, users",
        ),
        (
            '[engines.k]\ntype = "kubernetes"\ntimeout = "soon"',
            "engines.k.timeout: Input should be a valid number, unable to parse string as a number",
        ),
        (
            '[engines.r]\ntype = "ray"\ntoken = "hush"\ntoken_file = "/t"',
            "engines.r: token and token_file: leave out either of the two",
        ),
        (
            '[engines.r]\ntype = "ray"\n[[engines.r.autoscaling]]\nmax = 1\ncpus = 1\nsize = 3',
            "engines.r.autoscaling.0.memory: missing",
        ),
        (
            '[engines.r]\ntype = "ray"\n[[engines.r.autoscaling]]\nmax = 1\ncpus = 1\nmemory = 3\ngpu = 1',
            "engines.r.autoscaling.0.gpu: no such key: did you mean 'gpus'?",
        ),
        (
            '[oidc.a]\nissuer = "https://h/x"\nclient_id = "c"\n[oidc.b]\nissuer = "https://h/x/"\nclient_id = "d"',
            "oidc: 'a' and 'b' have the same issuer 'https://h/x/': expected a different one for each provider; name "
            "all groups in one section",
        ),
        ("[profiles.big]\ncpu = 3", "profiles.big.cpu: no such key: did you mean 'cpus'?"),
        (
            '[profiles.big]\ntolerations = [{value = "x"}]',
            'profiles.big.tolerations.0: key: missing; without one operator = "Exists" is needed, which tolerates '
            "every taint",
        ),
        (
            '[profiles.big]\ntolerations = [{key = "a", operator = "Exists", value = "x"}]',
            'profiles.big.tolerations.0: value: goes with operator = "Equal" only',
        ),
        ("engine = 3", "engine: no such key: did you mean 'engines'?"),
        ('default_engine = "moon"', "settings: default_engine 'moon' is none of: local"),
        (
            'multi_tenant = true\n[engines.local]\ntype = "local"',
            "settings: engine 'local' is of type local, which is no security boundary: "
            "refused with multi_tenant = true",
        ),
        (
            'multi_tenant = true\n[engines.lab]\ntype = "ray"',
            "settings: engine 'lab' is of type ray, which is no security boundary: refused with multi_tenant = true",
        ),
        (
            '[notify.smtp]\nhost = "mail.example.com"\npassword = "hush"',
            "notify.smtp: sender: expected the address that e-mails come from, such as weft@example.com",
        ),
        ('[notify.smtp]\ntls = "ssl"', "notify.smtp.tls: Input should be 'starttls', 'tls' or 'none'"),
    ],
)
def test_what_is_wrong_is_said_with_engine_and_key(write: Write, text: str, said: str) -> None:
    write(text)
    with pytest.raises(ValidationError) as raised:
        load_settings()
    problems = settings_problems(raised.value)
    assert said in problems
    assert "hush" not in "\n".join(problems)


def test_the_default_engine_is_the_local_one_or_else_the_first(write: Write) -> None:
    write('[engines.far]\ntype = "kubernetes"\n[engines.near]\ntype = "ray"')
    assert load_settings().default_engine == "far"
    write('[engines.far]\ntype = "kubernetes"\n[engines.local]\ntype = "local"')
    assert load_settings().default_engine == "local"


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ValidationError) as raised:
        Settings.model_validate({"engines": {"a": {"type": "x"}, "b": {"type": "ray", "tokn": "hush"}}})
    assert settings_problems(raised.value) == [
        "engines.a.type: expected one of: local, ray, kubernetes, found 'x'",
        "engines.b.tokn: no such key: did you mean 'token'?",
    ]
