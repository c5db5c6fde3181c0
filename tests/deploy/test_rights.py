"""The worker may do on the cluster what its engine does there, and nothing else; nobody else may do anything."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from tests.deploy.chart import EVERYTHING, EXTERNAL, PER_PROJECT, REPOSITORY, Document, Rendered, names, render

_ENGINE = REPOSITORY / "workers" / "weft_workers" / "engines" / "kubernetes"
_APIS = (client.CoreV1Api, client.NetworkingV1Api, client.CustomObjectsApi)
_VERBS = {"read": "get", "get": "get", "replace": "update"}
_RESOURCES = {
    "pod": ("", "pods"),
    "secret": ("", "secrets"),
    "event": ("", "events"),
    "node": ("", "nodes"),
    "namespace": ("", "namespaces"),
    "network_policy": ("networking.k8s.io", "networkpolicies"),
    "custom_object": ("kueue.x-k8s.io", "workloads"),
}
_METHOD = re.compile(
    r"^(?P<verb>[a-z]+)_(?P<namespaced>namespaced_)?(?P<kind>[a-z_]+?)(?P<everywhere>_for_all_namespaces)?$"
)

Rights = dict[tuple[str, str], set[str]]


class Engine:
    """What the engine calls, as its source has it: names of the official client's methods, some of them composed."""

    def __init__(self, folder: Path = _ENGINE) -> None:
        files = [list(ast.walk(ast.parse(file.read_text()))) for file in sorted(folder.glob("*.py"))]
        self.plain = {text for nodes in files for text in self._texts(nodes) if self._is_method(text)}
        """Methods that are named whole."""
        self.composed = {
            method
            for nodes in files
            for node in nodes
            if isinstance(node, ast.JoinedStr)
            for method in self._compose(node, self._texts(nodes))
            if self._is_method(method)
        }
        """Methods that an f-string makes of a kind, with every kind that its file speaks of."""
        self.watched = {kind for nodes in files for kind in self._watched(nodes)}
        """Kinds that a Mirror follows."""

    @staticmethod
    def _texts(nodes: list[ast.AST]) -> set[str]:
        return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}

    @staticmethod
    def _is_method(text: str) -> bool:
        return bool(_METHOD.match(text)) and any(hasattr(api, text) for api in _APIS)

    @staticmethod
    def _compose(node: ast.JoinedStr, texts: set[str]) -> Iterator[str]:
        for kind in texts & set(_RESOURCES):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else kind for part in node.values)

    @staticmethod
    def _watched(nodes: list[ast.AST]) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Mirror":
                what = node.args[2]  # after the cluster and the words for errors
                if isinstance(what, ast.Constant):
                    assert isinstance(what.value, str)
                    match = _METHOD.match(what.value)
                    assert match, what.value
                    yield f"{match['kind']}{match['everywhere'] or ''}"
                else:
                    assert isinstance(what, ast.Call)
                    named = what.args[0]
                    assert isinstance(named, ast.Constant)
                    assert isinstance(named.value, str)
                    yield named.value

    def rights(self) -> tuple[Rights, Rights]:
        """What it needs in the learners' namespace, and on the whole cluster."""
        inside: Rights = defaultdict(set)
        everywhere: Rights = defaultdict(set)
        for method in self.plain | self.composed:
            match = _METHOD.match(method)
            assert match
            if match["everywhere"] and method not in self.plain:
                continue  # instead of the namespaced one, where each project has a namespace
            verb = _VERBS.get(match["verb"], match["verb"])
            scope = inside if match["namespaced"] else everywhere
            scope[_RESOURCES[match["kind"]]].add(verb)
        for kind in self.watched:
            name = kind.removesuffix("_for_all_namespaces")
            scope = everywhere if name != kind or kind == "node" else inside
            scope[_RESOURCES[name]].add("watch")
        return dict(inside), dict(everywhere)


def granted(role: Document) -> Rights:
    found: Rights = defaultdict(set)
    for rule in role["rules"]:
        assert set(rule) == {"apiGroups", "resources", "verbs"}
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found[group, resource] |= set(rule["verbs"])
    return dict(found)


def test_the_engines_calls_are_found() -> None:
    """Or the comparisons below would compare nothing."""
    engine = Engine()
    assert {"list_node", "list_pod_for_all_namespaces"} <= engine.plain
    assert {"create_namespaced_pod", "create_namespaced_secret", "read_namespaced_secret"} <= engine.composed
    assert {"pod", "secret", "node", "pod_for_all_namespaces"} <= engine.watched


def test_the_worker_may_do_what_its_engine_does_and_no_more() -> None:
    rendered = render({"settings": {"engines": {"kubernetes": {"queue": "team-a"}}}})
    inside, everywhere = Engine().rights()
    del everywhere["", "namespaces"]  # create_namespaces is off
    assert granted(rendered.one("Role", "weft-system-weft-worker")) == inside
    assert granted(rendered.one("ClusterRole", "weft-system-weft-worker")) == everywhere


def test_kueue_is_asked_only_where_there_is_a_queue() -> None:
    inside, _ = Engine().rights()
    del inside["kueue.x-k8s.io", "workloads"]
    assert granted(render({}).one("Role", "weft-system-weft-worker")) == inside


def test_namespaces_of_projects_want_the_rights_everywhere() -> None:
    rendered = render(PER_PROJECT)
    inside, everywhere = Engine().rights()
    del inside["kueue.x-k8s.io", "workloads"]
    together = {key: inside.get(key, set()) | everywhere.get(key, set()) for key in inside | everywhere}
    assert granted(rendered.one("ClusterRole", "weft-system-weft-worker")) == together
    assert everywhere["", "namespaces"] == {"create"}
    assert not rendered.all("Role")
    assert not rendered.all("Namespace")


def test_no_role_says_everything(rendered: Rendered) -> None:
    for role in rendered.all("Role") + rendered.all("ClusterRole"):
        for rule in role["rules"]:
            assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
            assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])
            # A right on all Secrets of the cluster only where the learners' namespaces can't be named.
            if role["kind"] == "ClusterRole" and "secrets" in rule["resources"]:
                assert "{project}" in str(rendered.settings["engines"])


def test_roles_are_bound_to_the_worker_alone(rendered: Rendered) -> None:
    worker = {"kind": "ServiceAccount", "name": "weft-worker", "namespace": "weft-system"}
    roles = {("Role", role["metadata"]["namespace"]) for role in rendered.all("Role")}
    roles |= {("ClusterRole", None) for _ in rendered.all("ClusterRole")}
    bound = set()
    for binding in rendered.all("RoleBinding") + rendered.all("ClusterRoleBinding"):
        assert binding["subjects"] == [worker]
        assert binding["roleRef"]["name"] in names(rendered.all(binding["roleRef"]["kind"]))
        bound.add((binding["roleRef"]["kind"], binding["metadata"].get("namespace")))
    assert bound == roles
    assert rendered.pod("worker")["spec"]["serviceAccountName"] == worker["name"]
    assert rendered.one("ServiceAccount", worker["name"])["metadata"]["namespace"] == worker["namespace"]


@pytest.mark.parametrize(
    ("values", "namespaces"),
    [({}, {"weft-learners"}), (EVERYTHING, {"weft-learners", "second-learners"}), (EXTERNAL, {"weft-learners"})],
    ids=["default", "everything", "external"],
)
def test_each_namespace_of_learners_has_the_role(values: dict[str, Any], namespaces: set[str]) -> None:
    rendered = render(values)
    assert {role["metadata"]["namespace"] for role in rendered.all("Role")} == namespaces
    assert set(names(rendered.all("Namespace"))) == namespaces
    for namespace in rendered.all("Namespace"):
        assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
        assert namespace["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert not render({"learners": {"createNamespace": False}}).all("Namespace")


def test_without_an_engine_on_this_cluster_there_are_no_rights() -> None:
    rendered = render(
        {
            "settings": {
                "default_engine": "far",
                "engines": {
                    "kubernetes": None,
                    "far": {"type": "kubernetes", "kubeconfig": "/etc/weft/engines/far/kubeconfig"},
                },
            },
            "engineSecrets": {"far": {"existingSecret": "far"}},
        }
    )
    for kind in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "Namespace"):
        assert not rendered.all(kind)
    assert rendered.pod("worker")["spec"]["automountServiceAccountToken"] is False
    assert not render({"rbac": {"create": False}}).all("Role")
