"""The bundled Redis and S3 on a real cluster: as nobody, on a read-only root, and with one way in.

The images are the test cluster's own with the real programs in them. tests/containers/test_chart.py takes the stores'
images themselves, Postgres's among them.
"""

from __future__ import annotations

import base64
import json
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import botocore.exceptions
import pytest
import redis
import yaml
from botocore.config import Config
from tests.deploy import images
from tests.deploy.chart import Rendered, merged, render
from tests.kubernetes.cluster import Cluster
from tests.servers import Servers

IMAGES = (images.service, images.redis, images.seaweedfs)
STORED = b"x" * (9 << 20)


class Bundled:
    """The two servers' objects, applied in a namespace of their own."""

    def __init__(self, kube: Cluster, namespace: str, rendered: Rendered) -> None:
        self.kube, self.namespace, self.rendered = kube, namespace, rendered
        self.before = ""
        """The uid of the pod of S3 before its restart."""

    def apply(self) -> None:
        wanted = [
            document
            for document in self.rendered.documents
            if document["metadata"]["name"] in {"weft", "weft-redis", "weft-s3"} and document["kind"] != "ConfigMap"
        ]
        self.kube.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(wanted))
        for owner in ("deployment/weft-redis", "statefulset/weft-s3"):
            self._rolled_out(owner)

    def restart_s3(self) -> None:
        """With an object in its store."""
        s3 = self.s3()
        s3.create_bucket(Bucket="weft")
        s3.put_object(Bucket="weft", Key="jobs/a", Body=STORED)
        self.before = self.pod("s3")["metadata"]["uid"]
        self.kube.kubectl("delete", "pod", "weft-s3-0", "-n", self.namespace, timeout=240)
        self._rolled_out("statefulset/weft-s3")

    def _rolled_out(self, owner: str) -> None:
        self.kube.kubectl("rollout", "status", owner, "-n", self.namespace, "--timeout=240s", timeout=260)

    def pod(self, component: str) -> dict[str, Any]:
        found = self.kube.items("pods", self.namespace, f"app.kubernetes.io/component={component}")
        (pod,) = [item for item in found if "deletionTimestamp" not in item["metadata"]]
        return pod

    def address(self, component: str) -> str:
        return str(self.pod(component)["status"]["podIP"])

    def secret(self, key: str) -> str:
        return base64.b64decode(self.rendered.one("Secret", "weft")["data"][key]).decode()

    def s3(self, secret_key: str | None = None) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=f"http://{self.address('s3')}:8333",
            region_name="us-east-1",
            aws_access_key_id=self.secret("s3-access-key"),
            aws_secret_access_key=secret_key or self.secret("s3-secret-key"),
            config=Config(connect_timeout=5, read_timeout=20, s3={"addressing_style": "path"}),
        )


@contextmanager
def begin(kube: Cluster, _servers: Servers, _folder: Path) -> Iterator[Bundled]:
    """Installed, and S3 restarted."""
    name = f"weft-bundled-{uuid.uuid4().hex[:8]}"

    def image(found: tuple[str, str]) -> dict[str, Any]:
        return {"image": {"repository": found[0], "tag": found[1]}}

    values: dict[str, Any] = {
        "api": image(images.service(kube)),
        "redis": image(images.redis(kube)),
        "s3": image(images.seaweedfs(kube)) | {"persistence": {"size": "1Gi", "storageClass": name}},
    }
    small = {"resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}}
    rendered = render(merged(values, {"redis": small, "s3": small, "migrate": small}), namespace=name)
    with kube.namespace(name), tempfile.TemporaryDirectory(prefix=f"{name}-", dir="/tmp") as folder:
        # A folder of this machine, as no storage class is there; what a hostPath does not do is take over fsGroup.
        Path(folder).chmod(0o777)
        kube.kubectl("apply", "-f", "-", stdin=json.dumps(_volume(name, folder)))
        try:
            installed = Bundled(kube, name, rendered)
            installed.apply()
            installed.restart_s3()
            yield installed
        finally:
            kube.kubectl("delete", "pods", "--all", "-n", name, "--grace-period=0", "--force", check=False)
            kube.kubectl("delete", "pv", name, "--wait=false", check=False)


@pytest.fixture
def bundled(releases: Callable[[str], Bundled]) -> Bundled:
    return releases("test_bundled")


def _volume(name: str, folder: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": name,
            "hostPath": {"path": folder},
        },
    }


def test_redis_wants_the_password(bundled: Bundled) -> None:
    host = bundled.address("redis")
    with redis.Redis(host=host, password=bundled.secret("redis-password")) as client:
        assert client.ping()
        assert client.config_get("save") == {"save": ""}
    with redis.Redis(host=host) as client, pytest.raises(redis.AuthenticationError):
        client.ping()


def test_s3_keeps_objects_over_a_restart(bundled: Bundled) -> None:
    assert bundled.pod("s3")["metadata"]["uid"] != bundled.before
    assert bundled.s3().get_object(Bucket="weft", Key="jobs/a")["Body"].read() == STORED


def test_s3_takes_no_other_key(bundled: Bundled) -> None:
    with pytest.raises(botocore.exceptions.ClientError, match=r"SignatureDoesNotMatch|InvalidAccessKeyId"):
        bundled.s3("wrong").list_buckets()


def test_s3_has_one_way_in(bundled: Bundled) -> None:
    """Master, filer, volume server, and gRPC beside S3 trust everyone who reaches them."""
    pod = ("exec", "weft-s3-0", "-c", "entrance", "-n", bundled.namespace, "--")
    text = bundled.kube.kubectl(*pod, "cat", "/proc/net/tcp", "/proc/net/tcp6")
    sockets = [line.split()[1:4] for line in text.splitlines() if ":" in line.split()[1]]
    listening = [where.split(":") for where, _, state in sockets if state == "0A"]
    outside = {int(port, 16) for address, port in listening if address not in {"0100007F", "0" * 24 + "01000000"}}
    assert outside == {8333}
    assert len(listening) > 4  # the others are there
