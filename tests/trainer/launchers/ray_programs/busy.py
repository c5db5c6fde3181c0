"""An actor on each node, each with processes of its own, one of them in a session of its own.

``busy.py [CODE]``: exit with CODE as soon as they run.
"""

import os
import subprocess
import sys
import time

import ray

ray.init()


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
class Busy:
    def start(self) -> None:
        subprocess.Popen(["sleep", "1000"])
        subprocess.Popen(["sleep", "1001"], start_new_session=True)


actors = [Busy.remote() for _ in range(int(ray.cluster_resources()["CPU"]))]
ray.get([actor.start.remote() for actor in actors])
print("working", flush=True)
if sys.argv[1:]:
    os._exit(int(sys.argv[1]))
time.sleep(1000)
