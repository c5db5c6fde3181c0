"""Handwritten digits with PyTorch and Horovod: every learner trains on its share, Horovod averages the gradients.

Weft gives DATA_DIR, RESULT_DIR and CHECKPOINT_DIR, and starts this program once a learner with all that hvd.init()
needs.
"""

import argparse
import os
from pathlib import Path

import horovod.torch as hvd
import torch
from model import Net, read_digits
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

try:
    from weft_trainer import log_metrics  # there in every learner
except ImportError:  # on a machine without Weft

    def log_metrics(**_) -> None: ...


DATA = Path(os.environ["DATA_DIR"])
RESULTS = Path(os.environ["RESULT_DIR"])
CHECKPOINT = Path(os.environ["CHECKPOINT_DIR"]) / "checkpoint.pt"


def say(line: str) -> None:
    """Only the first process prints, for all of them: sums and averages over all processes."""
    if hvd.rank() == 0:
        print(line, flush=True)


def learning_rate(args, done: float) -> float:
    """`args.learning_rate` × processes, as so many times more digits go into each step; reached slowly, since a start
    at that speed may diverge, then down to 0 in a straight line. `done` counts epochs."""
    peak = args.learning_rate * hvd.size()
    if done < args.warmup_epochs:
        return args.learning_rate + (peak - args.learning_rate) * done / args.warmup_epochs
    return peak * (args.epochs - done) / (args.epochs - args.warmup_epochs)


def train_epoch(model, optimizer, loader, epoch, args, device) -> None:
    model.train()
    seen = torch.zeros(3)  # sum of losses, right answers, digits
    for step, (images, labels) in enumerate(loader):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(args, epoch + step / len(loader))
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        output = model(images)
        loss = functional.cross_entropy(output, labels)
        loss.backward()
        optimizer.step()  # first waits for the gradients' average over all processes
        right = (output.argmax(dim=1) == labels).sum().item()
        seen += torch.tensor([loss.item() * len(labels), right, len(labels)])
        if (step + 1) % args.log_every == 0:
            say(f"epoch {epoch + 1}/{args.epochs}  step {step + 1}/{len(loader)}  loss {loss.item():.4f}")
    loss_sum, right, digits = hvd.allreduce(seen, op=hvd.Sum).tolist()
    say(f"epoch {epoch + 1}/{args.epochs}  loss {loss_sum / digits:.4f}  accuracy {right / digits:.4f}")
    if hvd.rank() == 0:
        log_metrics(loss=loss_sum / digits, accuracy=right / digits, step=epoch + 1, group="train")


def test(model, device) -> tuple[float, int]:
    """Accuracy on the held-out digits, of which each process takes its share, and how many they are."""
    images, labels = (part[hvd.rank() :: hvd.size()].to(device) for part in read_digits(DATA, "t10k"))
    model.eval()
    with torch.no_grad():
        right = (model(images).argmax(dim=1) == labels).sum().item()
    right, digits = hvd.allreduce(torch.tensor([float(right), float(len(labels))]), op=hvd.Sum).tolist()
    return right / digits, int(digits)


def save(state: dict, path: Path) -> None:
    """At once or not at all: a learner may be stopped at any moment, also while it writes."""
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)


def random_numbers() -> dict:
    """The state of this process's random numbers, from which dropout comes."""
    return {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None}


def set_random_numbers(state: dict) -> None:
    torch.set_rng_state(state["cpu"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32, help="of each process")
    parser.add_argument("--learning-rate", type=float, default=0.04, help="of one process alone")
    parser.add_argument("--warmup-epochs", type=float, default=2)
    parser.add_argument("--log-every", type=int, default=10, help="steps")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    hvd.init()
    torch.manual_seed(args.seed + hvd.rank())  # dropout differs between processes; the weights get equal below
    gpu = torch.cuda.is_available() and hvd.nccl_built()  # without NCCL, Horovod averages what is on the CPU
    device = torch.device("cuda", hvd.local_rank()) if gpu else torch.device("cpu")
    print(f"rank {hvd.rank()} of {hvd.size()} on {device.type}", flush=True)

    # Each process sees another part of the digits, in an order that changes with the epoch and is the same every run.
    digits = TensorDataset(*read_digits(DATA, "train"))
    sampler = DistributedSampler(digits, num_replicas=hvd.size(), rank=hvd.rank(), seed=args.seed)
    loader = DataLoader(digits, args.batch_size, sampler=sampler)

    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate, momentum=0.9)
    # Before it gets any state: this makes a new optimizer, which takes over the settings only.
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    start, random = 0, []
    if hvd.rank() == 0 and CHECKPOINT.exists():
        # An earlier attempt of this job was interrupted: go on after its last epoch.
        state = torch.load(CHECKPOINT, weights_only=True, map_location="cpu")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start, random = state["epochs"], state["random"]
        say(f"resuming after epoch {start} from {CHECKPOINT.name}")
    # All begin with the state of the first process: fresh weights or the checkpoint.
    start, random = hvd.broadcast_object((start, random), root_rank=0)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    if len(random) == hvd.size():  # else another number of processes goes on
        set_random_numbers(random[hvd.rank()])

    for epoch in range(start, args.epochs):
        sampler.set_epoch(epoch)
        train_epoch(model, optimizer, loader, epoch, args, device)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epochs": epoch + 1}
        state["random"] = hvd.allgather_object(random_numbers())  # of all processes: each has its own
        if hvd.rank() == 0:
            save(state, CHECKPOINT)

    accuracy, held_out = test(model, device)
    say(f"test accuracy {accuracy:.4f} on {held_out} held-out digits")
    if hvd.rank() == 0:
        log_metrics(accuracy=accuracy, step=args.epochs, group="test")
        torch.save(model.state_dict(), RESULTS / "model.pt")
        say("saved model.pt")
    hvd.shutdown()


if __name__ == "__main__":
    main()
