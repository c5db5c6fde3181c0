"""Weft reads the settings that the chart renders, and they mean what the values say."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.chart import (
    EVERYTHING,
    EXTERNAL,
    PER_PROJECT,
    Document,
    Rendered,
    environment,
    merged,
    render,
)

from weft_core.engine_settings import EgressRule, KubernetesSettings, RaySettings
from weft_core.secrets import SecretBox
from weft_core.settings import Settings, load_settings

# Variables that are no setting of Weft's: where its files are, and what Kubernetes puts into the URLs below.
_OTHERS = {"WEFT_CONFIG", "TMPDIR", "POSTGRES_PASSWORD", "REDIS_PASSWORD", "HTTPS_PROXY"}


def _known() -> Iterator[str]:
    for name, field in Settings.model_fields.items():
        yield f"WEFT_{name}".upper()
        for inner in getattr(field.annotation, "model_fields", ()):
            yield f"WEFT_{name}__{inner}".upper()


def load(rendered: Rendered, component: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings as a container of this pod reads them, its environment resolved as the kubelet does."""
    container = rendered.pod(component)["spec"]["containers"][0]
    secrets = {secret["metadata"]["name"]: secret["data"] for secret in rendered.all("Secret")}
    values: dict[str, str] = {}
    for name, variable in environment(container).items():
        if "valueFrom" in variable:
            reference = variable["valueFrom"]["secretKeyRef"]
            values[name] = base64.b64decode(secrets[reference["name"]][reference["key"]]).decode()
        else:
            values[name] = re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], variable["value"])
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    volumes = rendered.pod(component)["spec"]["volumes"]
    config = next(volume for volume in volumes if volume["name"] == "settings")["configMap"]
    path = mounts["settings"]["mountPath"]
    assert values["WEFT_CONFIG"] == path + ("" if path.endswith("weft.toml") else "/weft.toml")
    file = folder / "weft.toml"
    file.write_text(rendered.one("ConfigMap", config["name"])["data"]["weft.toml"])
    for name, value in (values | {"WEFT_CONFIG": str(file)}).items():
        monkeypatch.setenv(name, value)
    return load_settings()


def test_variables_are_ones_that_weft_knows(rendered: Rendered) -> None:
    known = set(_known())
    for name, container in rendered.containers():
        if not name.startswith(("weft-postgres", "weft-redis", "weft-s3")):
            assert set(environment(container)) <= known | _OTHERS, name


@pytest.mark.parametrize("component", ["api", "worker", "migrate"])
@pytest.mark.parametrize(
    "values", [{}, EXTERNAL, EVERYTHING, PER_PROJECT], ids=["default", "external", "everything", "per-project"]
)
def test_settings_can_be_read(
    component: str, values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load(render(values), component, tmp_path, monkeypatch)
    assert settings.multi_tenant is (values is not EVERYTHING)
    assert settings.default_engine == "kubernetes"
    assert settings.api.host == "0.0.0.0"
    if component != "migrate":
        SecretBox(settings.secret_keys).encrypt("anything")


def test_default_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(render({}), "api", tmp_path, monkeypatch)
    assert settings.engines == {
        "kubernetes": KubernetesSettings(namespace="weft-learners", api_url="http://weft-api.weft-system.svc:8080")
    }
    assert settings.api.public_url == "http://weft-api.weft-system.svc:8080"
    assert settings.s3.endpoint == "http://weft-s3.weft-system.svc:8333"
    assert settings.s3.public_endpoint is None
    url = settings.database_url.get_secret_value()
    assert re.fullmatch(r"postgresql://weft:[A-Za-z0-9]{40}@weft-postgres\.weft-system\.svc:5432/weft", url)
    assert re.fullmatch(
        r"redis://:[A-Za-z0-9]{40}@weft-redis\.weft-system\.svc:6379/0", settings.redis_url.get_secret_value()
    )
    assert len(settings.secret_keys) == 1


def test_values_reach_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = render(EVERYTHING)
    settings = load(rendered, "worker", tmp_path, monkeypatch)
    given = EVERYTHING["settings"]
    ours = settings.engines["kubernetes"]
    assert isinstance(ours, KubernetesSettings)
    assert (ours.queue, ours.namespace) == ("team-a", "weft-learners")
    assert ours.egress == ["10.0.0.0/8", EgressRule(host="minio.storage.svc", ports=[9000])]
    assert ours.api_url == "http://weft-api.weft-system.svc.cluster.local:8080"
    assert ours.tolerations[0].operator == "Exists"
    elsewhere = settings.engines["elsewhere"]
    assert isinstance(elsewhere, KubernetesSettings)
    assert elsewhere.api_url is None  # in another cluster our Service's name means nothing: api.public_url
    ray = settings.engines["ray"]
    assert isinstance(ray, RaySettings)
    assert ray.environments == given["engines"]["ray"]["environments"]
    assert ray.autoscaling[0].memory == 34359738368
    profile = settings.profiles["a100x2"]
    assert profile.model_dump(include=set(given["profiles"]["a100x2"]) - {"tolerations"}) == {
        key: value for key, value in given["profiles"]["a100x2"].items() if key != "tolerations"
    }
    assert settings.images.aliases == given["images"]["aliases"]
    assert settings.limits.bundle_bytes == 1073741824
    assert settings.outgoing.allow == ["git.example.org"]
    assert settings.oidc["acme"].groups == {"ML Team": {"vision": "editor", "speech": "viewer"}}
    assert (settings.retention.logs.days, settings.retention.logs.bytes) == (90, 107374182400)
    assert settings.retention.code.days == 30
    assert (settings.notify.retry_seconds, settings.notify.smtp.sender) == (3600, "weft@example.org")
    assert (settings.timings.grace, settings.timings.absences) == (60.5, 4)
    assert settings.telemetry.otlp_endpoint == "http://collector.monitoring:4318"
    assert (settings.identity.issuer, settings.identity.key_days) == ("https://weft.example.org", 60)
    assert (settings.audit.retention_days, settings.audit.export) == (90, "syslog:logs.example.org:514")
    assert settings.api.public_url == "https://weft.example.org"
    assert settings.s3.public_endpoint == "https://s3.example.org"
    files = {mount["mountPath"] for mount in rendered.pod("worker")["spec"]["containers"][0]["volumeMounts"]}
    assert str(ray.token_file.parent if ray.token_file else "") in files
    assert str(elsewhere.kubeconfig.parent if elsewhere.kubeconfig else "") in files


def test_odd_names_and_texts_stay_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'a "quoted" <b> & \\ back\nslash ünï'
    given = {"a.b/c": text, 'q"uote': "1", "nothing": ""}
    values = {"settings": {"profiles": {"odd one": {"node_selector": given, "cpus": 0.5}}}}
    settings = load(render(values), "worker", tmp_path, monkeypatch)
    assert settings.profiles["odd one"].node_selector == given
    assert settings.profiles["odd one"].cpus == 0.5


def test_the_cluster_may_choose_the_learners_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"settings": {"engines": {"kubernetes": {"run_as_user": "cluster"}}}}
    engine = load(render(values), "worker", tmp_path, monkeypatch).engines["kubernetes"]
    assert isinstance(engine, KubernetesSettings)
    assert engine.run_as_user is None


def test_null_takes_a_value_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "settings": {
            "multi_tenant": False,
            "default_engine": "ray",
            "engines": {"kubernetes": None, "ray": {"type": "ray", "address": "http://ray:8265"}},
        }
    }
    rendered = render(values)
    settings = load(rendered, "worker", tmp_path, monkeypatch)
    assert list(settings.engines) == ["ray"]
    assert not rendered.all("Role")
    assert not rendered.all("ClusterRole")
    assert not rendered.all("Namespace")


def test_origins_of_ffdls_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(render({}), "api", tmp_path, monkeypatch).api.ffdl_origins == []
    values: Document = {"api": {"ffdlOrigins": ["https://ffdl.example.org", "http://localhost:4200"]}}
    assert load(render(values), "api", tmp_path, monkeypatch).api.ffdl_origins == values["api"]["ffdlOrigins"]


def test_the_public_url_is_what_users_reach() -> None:
    def url(values: Document) -> str:
        return str(render(values).settings["api"]["public_url"])

    ingress = {"ingress": {"enabled": True, "host": "weft.example.org"}}
    assert url(ingress) == "http://weft.example.org"
    assert url(merged(ingress, {"ingress": {"tlsSecret": "tls"}})) == "https://weft.example.org"
    assert url(merged(ingress, {"api": {"publicUrl": "https://other.example.org"}})) == "https://other.example.org"
    assert url({"api": {"service": {"port": 80}}}) == "http://weft-api.weft-system.svc:80"
