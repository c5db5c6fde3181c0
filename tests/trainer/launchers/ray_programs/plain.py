"""Plain Ray, unchanged: an actor on each node, its view of the node, and tries to get in without the token."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

import ray

ray.init()


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
class Place:
    def see(self) -> dict[str, str | None]:
        return {name: os.environ.get(name) for name in ("LEARNER_ID", "DATA_DIR", "OMP_NUM_THREADS", "GREETING")}


places = [Place.remote() for _ in range(2)]
seen = sorted(ray.get([place.see.remote() for place in places]), key=lambda environment: environment["LEARNER_ID"])
print("places", json.dumps(seen))
print("cpus", ray.cluster_resources()["CPU"], "nodes", sorted(node["NodeName"] for node in ray.nodes()))
print("foreign", *(os.environ.get(name) for name in ("RAY_JOB_ID", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE")))

DASHBOARD = "http://" + ray._private.worker.global_worker.node.address_info["webui_url"]


def dashboard(token: str) -> bool:
    request = urllib.request.Request(DASHBOARD + "/api/jobs/", headers={"Authorization": f"Bearer {token}"})
    try:
        urllib.request.urlopen(request, timeout=60).close()
    except urllib.error.HTTPError as error:
        if error.code not in (401, 403):
            raise
        return False
    return True


# Any reply of the cluster's head would do: the client asks it for the cluster's id when it is made.
STRANGER = "import sys; from ray._raylet import GcsClient; GcsClient(sys.argv[1]).internal_kv_keys(b'', b'session')"
for name, changes in {
    "friend": {},
    "stranger": {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": ""},
    "impostor": {"RAY_AUTH_TOKEN": "0" * 64},
}.items():
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, os.environ["RAY_ADDRESS"]],
        env=os.environ | changes,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=100,
        check=False,
    )
    refused = "authenticat" in done.stderr.lower() or "token" in done.stderr.lower()
    inside = dashboard((os.environ | changes)["RAY_AUTH_TOKEN"])
    print(name, "comes in" if done.returncode == 0 else "is refused" if refused else done.stderr, end=", ")
    print("to the dashboard too" if inside else "by the dashboard too")
