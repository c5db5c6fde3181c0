"""CIFAR-10 with a ResNet-18, PyTorch and Horovod: every process trains on its share of the images, Horovod averages the
gradients.

Weft gives DATA_DIR, RESULT_DIR, CHECKPOINT_DIR and, when the manifest has a pretrained_model, PRETRAINED_DIR; it starts
this program once a device with all that hvd.init() needs.
"""

import argparse
import math
import os
import sys
import time
from pathlib import Path

import horovod.torch as hvd
import numpy as np
import torch
from model import ResNet18, class_names, read_images
from torch import Tensor
from torch.nn import functional

try:
    from weft_trainer import log_metrics  # there in every learner
except ImportError:  # on a machine without Weft

    def log_metrics(**_) -> None: ...


DATA = Path(os.environ["DATA_DIR"])
RESULTS = Path(os.environ["RESULT_DIR"])
CHECKPOINT = Path(os.environ["CHECKPOINT_DIR"]) / "checkpoint.pt"
PRETRAINED = os.environ.get("PRETRAINED_DIR")


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    def positive(word: str) -> int:
        if int(word) < 1:
            raise argparse.ArgumentTypeError(f"{word} is not 1 or more")
        return int(word)

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--epochs", type=positive, default=30)
    add("--batch-size", type=positive, default=64, help="images of each process in one forward and backward pass")
    add(
        "--batches-per-allreduce",
        type=positive,
        default=1,
        help="so many passes are added up before the gradients are averaged over the processes, for one step of all",
    )
    add("--lr", type=float, default=0.05, help="learning rate for --batch-size images a step; grows with them")
    add("--warmup-epochs", type=float, default=3, help="from --lr to the full rate over so many epochs")
    add("--momentum", type=float, default=0.9)
    add("--weight-decay", type=float, default=5e-4)
    add("--label-smoothing", type=float, default=0.0)
    add("--fp16-allreduce", action="store_true", help="send gradients as 16-bit numbers: half the bytes")
    add(
        "--augment",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="shift by up to 4 pixels and mirror at random",
    )
    add("--width", type=positive, default=64, help="channels of the first stage; 64 is ResNet-18")
    add(
        "--resume",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="there must be a checkpoint to go on from, of this job or in the pretrained model; with --no-resume none "
        "is looked at; without either, an interrupted attempt of this job goes on",
    )
    add("--test-batch-size", type=positive, default=256)
    add("--log-every", type=positive, default=20, help="steps")
    add("--seed", type=int, default=1)
    add("--no-cuda", action="store_true", help="use the CPU even if there is a GPU")
    return parser.parse_args(words)  # fmt: skip


def say(line: str) -> None:
    """Only the first process prints, for all of them: sums and averages over all processes."""
    if hvd.rank() == 0:
        print(line, flush=True)


def choose_device(args: argparse.Namespace) -> torch.device:
    """The process's own GPU; without NCCL, Horovod averages only what is on the CPU."""
    if torch.cuda.is_available() and hvd.nccl_built() and not args.no_cuda:
        torch.cuda.set_device(hvd.local_rank())
        return torch.device("cuda", hvd.local_rank())
    return torch.device("cpu")


def learning_rate(args: argparse.Namespace, done: float) -> float:
    """The rate after ``done`` epochs. Its peak is ``lr`` times as many images as go into a step instead of one pass of
    one process (Goyal et al., 2017, arXiv:1706.02677); a start at that speed may diverge, so it is reached in a
    straight line; then half a cosine down to 0 (Loshchilov and Hutter, 2016, arXiv:1608.03983)."""
    peak = args.lr * hvd.size() * args.batches_per_allreduce
    if done < args.warmup_epochs:
        return args.lr + (peak - args.lr) * done / args.warmup_epochs
    return peak * (1 + math.cos(math.pi * (done - args.warmup_epochs) / (args.epochs - args.warmup_epochs))) / 2


def share(count: int, args: argparse.Namespace, epoch: int) -> Tensor:
    """Which images this process takes in this epoch: the same for the same seed, and as many as every other takes."""
    order = np.random.default_rng([args.seed, epoch]).permutation(count)
    return torch.from_numpy(order[: count // hvd.size() * hvd.size()][hvd.rank() :: hvd.size()])


def augmented(images: Tensor, random: np.random.Generator) -> Tensor:
    """Each image shifted by up to 4 pixels either way, with black coming in, and half of them mirrored."""
    count, _, height, width = images.shape
    down, right = (torch.from_numpy(random.integers(0, 9, (count, 1))).to(images.device) for _ in range(2))
    mirror = torch.from_numpy(random.random(count) < 0.5).to(images.device)
    rows = down + torch.arange(height, device=images.device)
    columns = right + torch.arange(width, device=images.device)
    padded = functional.pad(images, (4, 4, 4, 4))
    each = torch.arange(count, device=images.device)[:, None, None]
    moved = padded.permute(0, 2, 3, 1)[each, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    return torch.where(mirror[:, None, None, None], moved.flip(3), moved)


def train_epoch(model, optimizer, images: Tensor, labels: Tensor, epoch: int, args: argparse.Namespace) -> str:
    """One pass over the images; loss and accuracy of it, to be printed."""
    model.train()
    random = np.random.default_rng([args.seed, epoch, hvd.rank()])
    batches = share(len(images), args, epoch).to(images.device).split(args.batch_size * args.batches_per_allreduce)
    seen = torch.zeros(3, device=images.device)  # sum of losses, right answers, images
    where = f"epoch {epoch + 1}/{args.epochs}"
    for step, batch in enumerate(batches):
        rate = learning_rate(args, epoch + step / len(batches))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        for part in batch.split(args.batch_size):
            inputs, targets = images[part], labels[part]
            outputs = model(augmented(inputs, random) if args.augment else inputs)
            loss = functional.cross_entropy(outputs, targets, reduction="sum", label_smoothing=args.label_smoothing)
            # The passes' gradients are added up, so each counts with its share of the step. Horovod sends a gradient
            # away as soon as the last of the passes has it.
            (loss / len(batch)).backward()
            right = (outputs.detach().argmax(dim=1) == targets).sum()
            seen += torch.stack([loss.detach(), right.float(), torch.tensor(len(part), device=loss.device).float()])
        optimizer.step()  # first waits for the gradients' average over all processes
        if (step + 1) % args.log_every == 0:
            say(f"{where}  step {step + 1}/{len(batches)}  loss {seen[0] / seen[2]:.4f}  lr {rate:.4f}")
    loss_sum, right, count = hvd.allreduce(seen, op=hvd.Sum).tolist()
    if hvd.rank() == 0:
        log_metrics(loss=loss_sum / count, accuracy=right / count, lr=rate, step=epoch + 1, group="train")
    return f"{where}  loss {loss_sum / count:.4f}  accuracy {right / count:.4f}  lr {rate:.4f}"


def average_statistics(model: torch.nn.Module) -> None:
    """Each process's batch normalisation has seen other images; the model that is tested and stored has their mean."""
    statistics = [statistic for name, statistic in model.named_buffers() if "running_" in name]
    for statistic, mean in zip(statistics, hvd.grouped_allreduce(statistics, op=hvd.Average), strict=True):
        statistic.copy_(mean)


def test(model, images: Tensor, labels: Tensor, args: argparse.Namespace) -> float:
    """Accuracy on the held-out images, of which each process takes its share."""
    model.eval()
    mine = torch.arange(len(images), device=images.device)[hvd.rank() :: hvd.size()]
    right = torch.zeros(1)
    with torch.no_grad():
        for part in mine.split(args.test_batch_size):
            right += (model(images[part]).argmax(dim=1) == labels[part]).sum().cpu()
    return hvd.allreduce(right, op=hvd.Sum).item() / len(images)


def find_checkpoint(args: argparse.Namespace) -> Path | None:
    """This job's own checkpoint, or with --resume the one that an earlier job has stored beside its model."""
    if args.resume is False:
        return None
    if args.resume is None or CHECKPOINT.exists():
        return CHECKPOINT if CHECKPOINT.exists() else None
    return next(iter(sorted(Path(PRETRAINED).rglob("checkpoint.pt"))), None) if PRETRAINED else None


def resume(model, optimizer, args: argparse.Namespace, device: torch.device) -> int:
    """Load the checkpoint to continue from into model and optimizer of the first process; returns its number of epochs,
    in all processes."""
    state = path = find_checkpoint(args) if hvd.rank() == 0 else None
    if path is not None:
        state = torch.load(path, weights_only=True, map_location=device)
    done, width = hvd.broadcast_object((state["epochs"], state["width"]) if state else (None, args.width), root_rank=0)
    if done is None and args.resume:
        sys.exit(
            f"--resume: no checkpoint.pt in CHECKPOINT_DIR, nor in a pretrained model ({PRETRAINED or 'not given'})"
        )
    if width != args.width:
        sys.exit(f"the checkpoint is of a network with --width {width}, not {args.width}")
    if state:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        say(f"resuming after epoch {done} from {path}")
    return done or 0


def save(state: dict, path: Path) -> None:
    """At once or not at all: a learner may be stopped at any moment, also while it writes."""
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)


def train(args: argparse.Namespace) -> None:
    device = choose_device(args)
    print(f"rank {hvd.rank()} of {hvd.size()} on {device.type}", flush=True)
    images, labels = (part.to(device) for part in read_images(DATA, "data_batch"))
    held_out = [part.to(device) for part in read_images(DATA, "test_batch")]
    classes = class_names(DATA)

    torch.manual_seed(args.seed)
    model = ResNet18(args.width, len(classes)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, args.momentum, weight_decay=args.weight_decay)
    # Wrapped before it gets any state: DistributedOptimizer is a new optimizer, which takes over only the settings.
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
        backward_passes_per_step=args.batches_per_allreduce,
    )
    start = resume(model, optimizer, args, device)
    # All begin with the state of the first process: fresh weights or the checkpoint. The weights come last: where the
    # optimizer has no state yet, it gets one by a step that lets them decay.
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    say(
        f"{sum(weight.numel() for weight in model.parameters()):,} weights; {len(images):,} images, of which each step "
        f"takes {hvd.size()} processes × {args.batches_per_allreduce} passes × {args.batch_size}"
    )

    started, accuracy = time.monotonic(), None
    for epoch in range(start, args.epochs):
        trained = train_epoch(model, optimizer, images, labels, epoch, args)
        average_statistics(model)
        accuracy = test(model, *held_out, args)
        say(f"{trained}  test accuracy {accuracy:.4f}")
        if hvd.rank() == 0:
            log_metrics(accuracy=accuracy, step=epoch + 1, group="test")
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            save({**state, "epochs": epoch + 1, "width": args.width}, CHECKPOINT)
    if start < args.epochs:
        rate = (args.epochs - start) * len(images) / (time.monotonic() - started)
        say(f"{rate:.1f} images/s on {hvd.size()} devices")
    else:
        say(f"nothing left to train: {start} epochs are done, --epochs {args.epochs} is the whole")
        accuracy = test(model, *held_out, args)
    say(f"test accuracy {accuracy:.4f} on {len(held_out[0]):,} held-out images")
    if hvd.rank() == 0:
        torch.save({"model": model.state_dict(), "width": args.width, "classes": classes}, RESULTS / "model.pt")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        save({**state, "epochs": max(start, args.epochs), "width": args.width}, RESULTS / "checkpoint.pt")
        say("saved model.pt, and checkpoint.pt to go on from")


def main() -> None:
    args = arguments()
    hvd.init()
    train(args)
    hvd.shutdown()


if __name__ == "__main__":
    main()
