"""The part of both programs that runs on the driver's learner, wherever their workers run: checkpoints, the model."""

import os
from pathlib import Path

import ray
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

try:
    from weft_trainer import log_metrics  # there in every learner
except ImportError:  # on a machine without Weft

    def log_metrics(**_) -> None: ...


CHECKPOINT = Path(os.environ["CHECKPOINT_DIR"]) / "checkpoint.pt"


@ray.remote(num_cpus=0)
class CheckpointKeeper:
    """An actor on the driver's node: what the first worker hands to it goes to CHECKPOINT_DIR of learner 1, and from
    there to S3. On a retry it comes back there, while that worker may run in another learner. The curves, too, are of
    learner 1."""

    def save(self, state: dict, metrics: dict) -> None:
        """At once or not at all: a learner may be stopped at any moment, also while it writes."""
        log_metrics(**metrics, step=state["epochs"], group="train")
        part = CHECKPOINT.with_suffix(".part")
        torch.save(state, part)
        part.replace(CHECKPOINT)


def start_keeper():
    here = ray.get_runtime_context().get_node_id()
    return CheckpointKeeper.options(scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False)).remote()


def last_checkpoint() -> dict | None:
    """What an earlier attempt of this job left."""
    if not CHECKPOINT.exists():
        return None
    state = torch.load(CHECKPOINT, weights_only=True, map_location="cpu")
    print(f"resuming after epoch {state['epochs']} from {CHECKPOINT.name}", flush=True)
    return state


def workers() -> tuple[int, bool]:
    """How many workers the job's learners have room for, one a GPU or one a learner without; and whether on GPUs."""
    gpus = int(os.environ["GPU_COUNT"])
    return int(os.environ["NUM_LEARNERS"]) * max(1, gpus), gpus > 0


def store(result: dict) -> None:
    """What the first worker returned."""
    print(f"test accuracy {result['accuracy']:.4f} on {result['held_out']} held-out pictures", flush=True)
    weights = {name: torch.tensor(array) for name, array in result["model"].items()}
    torch.save(weights, Path(os.environ["RESULT_DIR"]) / "model.pt")
    print("saved model.pt", flush=True)
