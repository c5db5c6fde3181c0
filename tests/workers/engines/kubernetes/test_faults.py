"""Rights that are missing, and settings that lead nowhere.

A server that does not answer: tests/engines/test_unreachable.py, and test_client.py for the words. A node that is lost:
tests/kubernetes/test_outages.py."""

from __future__ import annotations

import base64
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.workers.engines.kubernetes.bench import PATIENCE, KubeBench, until

from weft_core.engine import EngineUnreachable

NOW = timedelta(0)
# All that the engine needs in the learners' namespace; and of the whole cluster.
RIGHTS = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "create", "delete"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch", "create", "delete"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
    {
        "apiGroups": ["networking.k8s.io"],
        "resources": ["networkpolicies"],
        "verbs": ["get", "create", "patch"],
    },
]
CLUSTER_RIGHTS = [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]}]


def account(bench: KubeBench, *, everywhere: bool = True) -> Path:
    """A kubeconfig for a service account that has the engine's rights and no others."""
    name, namespace = bench.namespace, bench.namespace
    subject = {"kind": "ServiceAccount", "name": "weft", "namespace": namespace}
    roles = [("Role", "RoleBinding", "weft", RIGHTS)]
    if everywhere:
        roles.append(("ClusterRole", "ClusterRoleBinding", name, CLUSTER_RIGHTS))
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "weft", "namespace": namespace}}
    ]
    for role, binding, called, rules in roles:
        metadata = {"name": called, **({"namespace": namespace} if role == "Role" else {})}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": called}
        objects += [
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": role, "metadata": metadata, "rules": rules},
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": binding,
                "metadata": metadata,
                "roleRef": reference,
                "subjects": [subject],
            },
        ]
    for made in objects:
        bench.kube.create(made)
    token = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "weft-token", "annotations": {"kubernetes.io/service-account.name": "weft"}},
        "type": "kubernetes.io/service-account-token",
    }
    bench.create(token)
    found = until(lambda: (bench.get("secrets", "weft-token") or {}).get("data", {}).get("token"), PATIENCE)
    theirs = yaml.safe_load(bench.kube.kubeconfig.read_text())
    theirs["users"] = [
        {"name": user["name"], "user": {"token": base64.b64decode(found).decode()}} for user in theirs["users"]
    ]
    place = bench.folder / "kubeconfig"
    place.write_text(yaml.safe_dump(theirs))
    return place


def test_no_more_rights_than_these_are_needed(bench: KubeBench) -> None:
    engine = bench.new_engine(kubeconfig=account(bench))
    try:
        spec = bench.spec(learners=2)
        engine.launch(spec)
        bench.running(spec, engine)
        assert {node.name for node in engine.capacity().nodes} == set(bench.kube.nodes)
        engine.launch(spec)
        waits = bench.spec(run_name="weft-waits-1", image="nowhere.test/nothing:1")
        engine.launch(waits)
        bench.wait(waits, lambda learner: "image pull failed" in learner.reason, engine)
        time.sleep(5)  # its events are read
        engine.observe()
        for stopped in (spec, waits):
            engine.stop(stopped.run_name, timedelta(seconds=20))
        bench.gone(spec)
    finally:
        for kind in ("clusterroles", "clusterrolebindings"):
            bench.kube.delete(kind, bench.namespace)


def test_a_right_that_is_missing_is_named(bench: KubeBench) -> None:
    engine = bench.new_engine(kubeconfig=account(bench, everywhere=False), timeout=5)
    with pytest.raises(EngineUnreachable, match=r"a right is missing: nodes is forbidden: User .* cannot list") as told:
        engine.capacity()
    assert "Traceback" not in str(told.value)


def test_credentials_that_are_not_accepted(bench: KubeBench) -> None:
    theirs = yaml.safe_load(bench.kube.kubeconfig.read_text())
    for user in theirs["users"]:
        user["user"] = {"token": "outdated"}
    place = bench.folder / "kubeconfig"
    place.write_text(yaml.safe_dump(theirs))
    engine = bench.new_engine(kubeconfig=place, timeout=5)
    for ask in (engine.observe, engine.capacity, lambda: engine.launch(bench.spec()), lambda: engine.stop("x", NOW)):
        with pytest.raises(EngineUnreachable, match=r"does not accept Weft's credentials \(401\)"):
            ask()
    place.write_text(bench.kube.kubeconfig.read_text())

    def sees() -> bool:
        try:
            return engine.observe() == {}
        except EngineUnreachable:  # on a busy machine, the watch may take longer than the engine waits for it
            return False

    until(sees)  # the file is read again


def test_settings_that_lead_nowhere(bench: KubeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="there is no kubeconfig"):
        bench.new_engine(kubeconfig=bench.folder / "none")
    with pytest.raises(EngineUnreachable, match="no-such-context"):
        bench.new_engine(context="no-such-context").observe()
    monkeypatch.setenv("KUBECONFIG", str(bench.folder / "none"))
    with pytest.raises(EngineUnreachable, match="Invalid kube-config file"):
        bench.new_engine(kubeconfig=None).observe()
    monkeypatch.setenv("KUBECONFIG", str(bench.kube.kubeconfig))
    assert bench.new_engine(kubeconfig=None).observe() == {}
