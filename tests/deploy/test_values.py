"""Wrong values are refused before anything is installed, with the name of the value and the reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from pydantic import BaseModel
from tests.deploy.chart import CHART, EXTERNAL, HelmError, merged, render

from weft_core.engine_settings import KubernetesSettings, NodePool, PlacementSettings, RaySettings
from weft_core.launch import Toleration
from weft_core.oidc_settings import OidcSettings
from weft_core.settings import (
    AgeSettings,
    AuditSettings,
    FairShareSettings,
    IdentitySettings,
    ImageSettings,
    KeepSettings,
    LimitSettings,
    NodeSettings,
    NotifySettings,
    ProfileSettings,
    RetentionSettings,
    Settings,
    SmtpSettings,
    TelemetrySettings,
    TimingSettings,
)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"replicas": 3}, "Additional property replicas is not allowed"),
        ({"api": {"replicas": "two"}}, "api.replicas: Invalid type. Expected: integer"),
        ({"api": {"image": {"digest": "latest"}}}, "api.image.digest"),
        ({"postgres": {"persistence": {"size": "10 GB"}}}, "postgres.persistence.size"),
        ({"postgres": {"password": "pass@word"}}, "postgres.password"),
        ({"secretKeys": {"value": "geheim"}}, "secretKeys.value"),
        ({"s3": {"bucket": "My_Bucket"}}, "s3.bucket"),
        ({"settings": {"database_url": "postgresql://"}}, "Additional property database_url is not allowed"),
        ({"settings": {"timings": {"grace": "2m"}}}, "settings.timings.grace: Invalid type. Expected: number"),
        ({"settings": {"timings": {"sweeps": 2}}}, "Additional property sweeps is not allowed"),
        ({"settings": {"engines": {"here": {"type": "local"}}}}, 'must be one of the following: "kubernetes", "ray"'),
        ({"settings": {"engines": {"ray": {"type": "ray"}}}}, "settings.engines.ray: address is required"),
        ({"settings": {"engines": {"kubernetes": {"quue": "a"}}}}, "Additional property quue is not allowed"),
        ({"settings": {"engines": {"kubernetes": {"namespace": "A_b"}}}}, "settings.engines.kubernetes.namespace"),
        (
            {"settings": {"default_engine": "gpu"}},
            'settings.default_engine "gpu" is none of settings.engines: kubernetes',
        ),
        (
            {"settings": {"engines": {"ray": {"type": "ray", "address": "http://ray"}}}},
            "settings.engines.ray is of type ray, which is no boundary between tenants",
        ),
        (
            {
                "settings": {
                    "multi_tenant": False,
                    "engines": {"ray": {"type": "ray", "address": "http://ray", "token": "geheim"}},
                }
            },
            "settings.engines.ray.token is a credential",
        ),
        (
            {"settings": {"engines": {"far": {"type": "kubernetes", "kubeconfig": "/etc/weft/engines/far/config"}}}},
            "name the Secret that holds it in engineSecrets.far.existingSecret",
        ),
        ({"engineSecrets": {"ray": {"existingSecret": "x"}}}, "settings.engines has no engine of that name"),
        ({"postgres": {"enabled": False}}, "set postgres.url, or postgres.existingSecret.name"),
        ({"postgres": {"url": "postgresql://a/b"}}, "set postgres.enabled to false"),
        ({"postgres": {"enabled": False, "url": "mysql://a/b"}}, "postgres.url"),
        ({"redis": {"enabled": False}}, "set redis.url, or redis.existingSecret.name"),
        ({"s3": {"enabled": False}}, "s3.enabled is false: set s3.endpoint"),
        ({"s3": {"enabled": False, "endpoint": "https://s3.example.org"}}, "set s3.accessKey and s3.secretKey"),
        ({"s3": {"endpoint": "https://s3.example.org"}}, "set s3.enabled to false"),
        ({"ingress": {"enabled": True}}, "set ingress.host"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(HelmError) as refused:
        render(values)
    assert words in str(refused.value)
    assert "geheim" not in str(refused.value)


def test_every_value_of_the_schema_has_a_default_and_a_place() -> None:
    """values.yaml is where users look things up: the schema knows nothing else."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    sections = {
        f".settings.{name}"
        for name in (
            *("fair_share", "images", "limits", "nodes", "notify", "outgoing", "timings", "telemetry"),
            *("retention", "audit", "identity"),
        )
    }  # as in weft.toml

    def compare(part: dict[str, Any], here: Any, path: str) -> None:
        part = schema["definitions"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
        if not part.get("properties") or path in sections:
            return
        assert set(part["properties"]) - {"global"} == set(here), path
        for key, value in here.items():
            compare(part["properties"][key], value, f"{path}.{key}")

    places = {key: value for key, value in schema["properties"].items() if key not in {"podSecurityContext"}}
    for key, part in places.items():
        if key != "global":
            if part.get("$ref"):
                continue
            compare(part, values[key], f".{key}")
    assert set(schema["properties"]) - {"global"} == set(values)


def test_the_schema_knows_every_setting_and_no_other() -> None:
    """A setting that is added, renamed or removed wants the same in values.schema.json."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    settings, definitions = schema["properties"]["settings"]["properties"], schema["definitions"]

    def fields(part: dict[str, Any]) -> set[str]:
        return set(part["properties"])

    # The others are values of the chart's own: where servers are, what opens them, who listens where.
    own = {"home", "startup_patience", "database_url", "redis_url", "secret_keys", "s3", "api", "datastore"}
    assert set(settings) == set(Settings.model_fields) - own
    sections: dict[str, type[BaseModel]] = {
        "images": ImageSettings,
        "limits": LimitSettings,
        "notify": NotifySettings,
        "timings": TimingSettings,
        "fair_share": FairShareSettings,
        "nodes": NodeSettings,
        "telemetry": TelemetrySettings,
        "retention": RetentionSettings,
        "audit": AuditSettings,
        "identity": IdentitySettings,
    }
    for name, model in sections.items():
        # A credential is no setting of the chart's: it stands in a Secret.
        assert fields(settings[name]) == set(model.model_fields) - {"metrics_token"}, name
    assert fields(settings["oidc"]["additionalProperties"]) == set(OidcSettings.model_fields) - {"client_secret"}
    assert fields(settings["notify"]["properties"]["smtp"]) == set(SmtpSettings.model_fields) - {"password"}
    defined: dict[str, type[BaseModel]] = {
        "age": AgeSettings,
        "keep": KeepSettings,
        "kubernetes": KubernetesSettings,
        "ray": RaySettings,
        "profile": ProfileSettings,
    }
    for name, model in defined.items():
        assert fields(definitions[name]) == set(model.model_fields), name
        for key, part in definitions[name]["properties"].items():
            if key == "autoscaling":
                assert fields(part["items"]) == set(NodePool.model_fields)
            if key == "tolerations":
                assert fields(part["items"]) == set(Toleration.model_fields)
    assert set(PlacementSettings.model_fields) <= fields(definitions["kubernetes"])


def test_what_is_allowed_renders() -> None:
    render(merged(EXTERNAL, {"podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}}))
    render({"settings": {"engines": {"kubernetes": {"run_as_user": 20000}}}})
    render({"secretKeys": {"value": f"{'A' * 43}=,{'b' * 43}="}})
