"""An ordinary Ray script in small: work on every node of its cluster, and an object that goes from one to another.

Each node's actor names its learner, makes an array that is too large to be sent along with a call, and leaves a file.
"""

import os
import socket
from pathlib import Path

import numpy as np
import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

SIZE = 1_000_000


@ray.remote(num_cpus=1)
class Worker:
    def who(self):
        Path(os.environ["RESULT_DIR"], f"learner-{os.environ['LEARNER_ID']}.txt").write_text("was here\n")
        return int(os.environ["LEARNER_ID"]), socket.gethostname()

    def make(self):
        return np.arange(SIZE)

    def total(self, array):
        return int(array.sum())


ray.init()
learners = int(os.environ["NUM_LEARNERS"])
nodes = placement_group([{"CPU": 1}] * learners, strategy="STRICT_SPREAD")
ray.get(nodes.ready(), timeout=120)
workers = [
    Worker.options(scheduling_strategy=PlacementGroupSchedulingStrategy(nodes, index)).remote()
    for index in range(learners)
]
for learner, host in sorted(ray.get([worker.who.remote() for worker in workers])):
    print(f"learner {learner} on {host}", flush=True)
made = workers[0].make.remote()
totals = ray.get([worker.total.remote(made) for worker in workers])
print(f"totals as they should be: {totals == [SIZE * (SIZE - 1) // 2] * learners}", flush=True)
