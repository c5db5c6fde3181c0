"""Handwritten digits with PyTorch's own DistributedDataParallel: every process trains on its share of the digits.

Weft gives DATA_DIR, RESULT_DIR and CHECKPOINT_DIR, and starts this program under torchrun, which gives it its RANK,
LOCAL_RANK and WORLD_SIZE and the address of the first one.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from model import Net, read_digits
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
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
    if dist.get_rank() == 0:
        print(line, flush=True)


def total(*numbers: float, device) -> list[float]:
    """Each number summed over all processes."""
    values = torch.tensor(numbers, dtype=torch.float32, device=device)
    dist.all_reduce(values)
    return values.tolist()


def learning_rate(args, done: float) -> float:
    """`args.learning_rate` × processes, as so many times more digits go into each step; reached slowly, since a start
    at that speed may diverge, then down to 0 in a straight line. `done` counts epochs."""
    peak = args.learning_rate * dist.get_world_size()
    if done < args.warmup_epochs:
        return args.learning_rate + (peak - args.learning_rate) * done / args.warmup_epochs
    return peak * (args.epochs - done) / (args.epochs - args.warmup_epochs)


def train_epoch(model, optimizer, loader, epoch, args, device) -> None:
    model.train()
    loss_sum = right = digits = 0
    for step, (images, labels) in enumerate(loader):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(args, epoch + step / len(loader))
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        output = model(images)
        loss = functional.cross_entropy(output, labels)
        loss.backward()  # averages the gradients over all processes while it goes
        optimizer.step()
        loss_sum += loss.item() * len(labels)
        right += (output.argmax(dim=1) == labels).sum().item()
        digits += len(labels)
        if (step + 1) % args.log_every == 0:
            say(f"epoch {epoch + 1}/{args.epochs}  step {step + 1}/{len(loader)}  loss {loss.item():.4f}")
    loss_sum, right, digits = total(loss_sum, right, digits, device=device)
    say(f"epoch {epoch + 1}/{args.epochs}  loss {loss_sum / digits:.4f}  accuracy {right / digits:.4f}")
    if dist.get_rank() == 0:
        log_metrics(loss=loss_sum / digits, accuracy=right / digits, step=epoch + 1, group="train")


def test(model, device) -> tuple[float, int]:
    """Accuracy on the held-out digits, of which each process takes its share, and how many they are."""
    images, labels = (part[dist.get_rank() :: dist.get_world_size()].to(device) for part in read_digits(DATA, "t10k"))
    model.eval()
    with torch.no_grad():
        right = (model(images).argmax(dim=1) == labels).sum().item()
    right, digits = total(right, len(labels), device=device)
    return right / digits, int(digits)


def save(state: dict, path: Path) -> None:
    """At once or not at all: a learner may be stopped at any moment, also while it writes."""
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)


def random_numbers() -> dict:
    """The state of this process's random numbers, from which dropout comes."""
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def gather(state: dict) -> list[dict]:
    """What each process has, by rank."""
    states = [None] * dist.get_world_size()
    dist.all_gather_object(states, state)
    return states


def resume(model, optimizer, device) -> int:
    """All take the first process's checkpoint, if an earlier attempt of this job left one: how many epochs are done."""
    found = [None]
    if dist.get_rank() == 0 and CHECKPOINT.exists():
        found = [torch.load(CHECKPOINT, weights_only=True, map_location="cpu")]
    dist.broadcast_object_list(found, src=0, device=device)
    state = found[0]
    if state is None:
        return 0
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    if len(state["random"]) == dist.get_world_size():  # else another number of processes goes on
        mine = state["random"][dist.get_rank()]
        torch.set_rng_state(mine["cpu"])
        if mine["cuda"] is not None and torch.cuda.is_available():
            torch.cuda.set_rng_state(mine["cuda"])
    say(f"resuming after epoch {state['epochs']} from {CHECKPOINT.name}")
    return state["epochs"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32, help="of each process")
    parser.add_argument("--learning-rate", type=float, default=0.04, help="of one process alone")
    parser.add_argument("--warmup-epochs", type=float, default=2)
    parser.add_argument("--log-every", type=int, default=10, help="steps")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpu else "gloo")
    torch.manual_seed(args.seed + dist.get_rank())  # dropout differs between processes; the weights get equal below
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} on {device.type}", flush=True)

    # Each process sees another part of the digits, in an order that changes with the epoch and is the same every run.
    digits = TensorDataset(*read_digits(DATA, "train"))
    sampler = DistributedSampler(digits, seed=args.seed)
    loader = DataLoader(digits, args.batch_size, sampler=sampler)

    net = Net().to(device)
    # Copies the first one's weights to all.
    model = DistributedDataParallel(net, device_ids=[device.index] if gpu else None)
    optimizer = torch.optim.SGD(net.parameters(), lr=args.learning_rate, momentum=0.9)
    for epoch in range(resume(net, optimizer, device), args.epochs):
        sampler.set_epoch(epoch)
        train_epoch(model, optimizer, loader, epoch, args, device)
        state = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epochs": epoch + 1}
        state["random"] = gather(random_numbers())  # of all processes: each has its own
        if dist.get_rank() == 0:
            save(state, CHECKPOINT)

    accuracy, held_out = test(net, device)
    say(f"test accuracy {accuracy:.4f} on {held_out} held-out digits")
    if dist.get_rank() == 0:
        log_metrics(accuracy=accuracy, step=args.epochs, group="test")
        torch.save(net.state_dict(), RESULTS / "model.pt")
        say("saved model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
