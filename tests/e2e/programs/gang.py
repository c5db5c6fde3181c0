"""Prints and checks this process's rank, world size and device: python gang.py horovod|torch|tensorflow|none

The same program whatever number of learners and of GPUs the manifest says. Every process learns its place from its
framework, tells it to all the others through that framework, and checks what all have told. A pretend GPU is one that
CUDA_VISIBLE_DEVICES names; no framework here can use it.
"""

import importlib.util
import json
import os
import sys
import time
from pathlib import Path

LEARNER, LEARNERS, GPUS = (int(os.environ[name]) for name in ("LEARNER_ID", "NUM_LEARNERS", "GPU_COUNT"))
DEVICES = [name for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name]


def horovod() -> tuple[int, int, int, list]:
    if importlib.util.find_spec("torch"):
        import horovod.torch as hvd
    else:
        import horovod.tensorflow as hvd
    hvd.init()
    assert (hvd.cross_rank(), hvd.cross_size()) == (LEARNER - 1, LEARNERS)
    assert hvd.local_size() == int(os.environ["LOCAL_WORLD_SIZE"]) == max(1, GPUS)
    assert (hvd.rank(), hvd.size()) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    place = (LEARNER, hvd.rank(), hvd.local_rank(), _device(hvd.local_rank()))
    return hvd.rank(), hvd.size(), hvd.local_rank(), hvd.allgather_object(place)


def torchrun() -> tuple[int, int, int, list]:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    local = int(os.environ["LOCAL_RANK"])
    assert int(os.environ["LOCAL_WORLD_SIZE"]) == max(1, GPUS)
    assert (int(os.environ["GROUP_RANK"]), int(os.environ["GROUP_WORLD_SIZE"])) == (LEARNER - 1, LEARNERS)
    all_places: list = [None] * dist.get_world_size()
    dist.all_gather_object(all_places, (LEARNER, dist.get_rank(), local, _device(local)))
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    return rank, size, local, all_places


def tensorflow() -> tuple[int, int, int, list]:
    """One process a learner: it has all of the learner's GPUs (MirroredStrategy's share of the work)."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    resolver = strategy.cluster_resolver
    rank, size = resolver.task_id, strategy.num_replicas_in_sync

    @tf.function
    def gather() -> tf.Tensor:
        mine = tf.constant([[LEARNER, rank, *(int(name) for name in DEVICES)]])
        return tf.distribute.get_replica_context().all_gather(mine, axis=0)

    rows = strategy.run(gather).numpy().tolist()
    return rank, size, 0, [(learner, at, 0, ",".join(map(str, devices))) for learner, at, *devices in rows]


def none() -> tuple[int, int, int, list]:
    """Nobody to meet: the learners leave their places in the folder that they share."""
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    shared = Path(os.environ["JOB_STATE_DIR"])
    part = shared / f"place-{LEARNER}.part"
    part.write_text(json.dumps((LEARNER, rank, 0, _device(None))))
    part.rename(shared / f"place-{LEARNER}.json")
    deadline = time.monotonic() + 60
    while len(files := sorted(shared.glob("place-*.json"))) < size:
        assert time.monotonic() < deadline, f"{len(files)} of {size} learners are here"
        time.sleep(0.05)
    return rank, size, 0, [json.loads(path.read_text()) for path in files]


def _device(local_rank: int | None) -> str:
    """Which device a process uses: its own of the learner's GPUs, or all of them; without any, the CPU."""
    if not DEVICES:
        return "cpu"
    return ",".join(DEVICES) if local_rank is None else DEVICES[local_rank]


def main(launcher: str) -> None:
    assert len(DEVICES) == GPUS, f"{GPUS} GPUs, but CUDA_VISIBLE_DEVICES={DEVICES}"
    rank, size, local, told = globals()[launcher]()
    each = max(1, GPUS) if launcher in ("horovod", "torchrun") else 1
    assert size == LEARNERS * each, f"{size} processes, not {LEARNERS} × {each}"
    assert (rank, local) == ((LEARNER - 1) * each + local, rank % each), (rank, local)
    places = sorted(tuple(place) for place in told)
    expected = [
        (learner, (learner - 1) * each + slot, slot) for learner in range(1, LEARNERS + 1) for slot in range(each)
    ]
    assert [place[:3] for place in places] == expected, places
    devices = [name for *_, names in places for name in names.split(",") if names not in ("cpu", "")]
    assert len(devices) == len(set(devices)) == LEARNERS * GPUS, f"devices {devices}"
    mine = next(names for *_, at, _, names in places if at == rank) or "cpu"
    print(f"place {rank} of {size}: learner {LEARNER}, local rank {local}, device {mine}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
