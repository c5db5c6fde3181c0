"""ResNet-50 on ImageNet with PyTorch: alone, with Horovod, or with torch.distributed under torchrun's environment.

Weft gives DATA_DIR, RESULT_DIR and CHECKPOINT_DIR, and starts this program once a GPU (once a learner without) with
what the processes need to find each other.
"""

import itertools
import os
import time
from pathlib import Path

import torch
from data import Noise, find, loader
from gang import join
from model import ResNet, normalize
from recipe import learning_rate, options
from report import measure, summary
from torch.nn import functional
from torch.utils.tensorboard import SummaryWriter

STARTED = time.monotonic()


class Training:
    """The model and everything that changes with it."""

    def __init__(self, args, gang) -> None:
        self.args, self.gang, self.device = args, gang, gang.device()
        self.net = ResNet(args.depth, args.classes, args.width).to(self.device, memory_format=gang.weights)
        decayed = [value for value in self.net.parameters() if value.ndim > 1]
        others = [value for value in self.net.parameters() if value.ndim <= 1]  # biases and normalization
        groups = [{"params": decayed, "weight_decay": args.weight_decay}, {"params": others}]
        plain = torch.optim.SGD(groups, args.base_lr, args.momentum, nesterov=args.momentum > 0)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=args.amp == "float16")
        self.model, self.optimizer = gang.wrap(self.net, plain, args.fp16_allreduce)
        self.epoch = self._resume()  # after that: Horovod's optimizer is a new one, without the old one's state

    def step(self, images, labels, epochs: float):
        """One step on one batch; loss (mean), and how many of the images were among the first one and five."""
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.args, self.gang.size, epochs)
        self.optimizer.zero_grad()
        logits = self._forward(self.model, images)
        loss = functional.cross_entropy(logits, labels, label_smoothing=self.args.label_smoothing)
        self.scaler.scale(loss).backward()
        self.gang.step(self.optimizer, self.scaler)
        return torch.stack([loss.detach(), *_hits(logits.detach(), labels)])

    @torch.no_grad()
    def validate(self, batches) -> tuple[float, float]:
        """Top-1 and top-5 accuracy over all processes' images."""
        self.gang.average_statistics(self.net)
        self.net.eval()
        seen = torch.zeros(3, device=self.device)
        for images, labels in batches:
            images, labels = images.to(self.device), labels.to(self.device)
            hits = _hits(self._forward(self.net, images), labels)
            seen += torch.stack([*hits, torch.tensor(float(len(labels)), device=self.device)])
        first, five, images = self.gang.sum(seen.tolist())
        return first / images, five / images

    def save(self, epoch: int) -> None:
        """At once or not at all: a learner may be stopped at any moment, also while it writes."""
        if self.gang.rank:
            return
        place = _checkpoint()
        part = place.with_suffix(".part")
        state = {name: getattr(self, name).state_dict() for name in ("net", "optimizer", "scaler")}
        torch.save({**state, "epoch": epoch}, part)
        part.replace(place)

    def _resume(self) -> int:
        """After which epoch to go on: 0, or where an earlier attempt of this job was interrupted."""
        place = _checkpoint()
        first = self.gang.rank == 0 and place.exists() and not self.args.benchmark
        state = self.gang.from_first(torch.load(place, map_location="cpu", weights_only=True) if first else None)
        if state is None:
            return 0
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scaler.is_enabled() and state["scaler"]:  # it may have begun without --amp
            self.scaler.load_state_dict(state["scaler"])
        if self.gang.rank == 0:
            print(f"resuming after epoch {state['epoch']} from {place.name}", flush=True)
        return state["epoch"]

    def _forward(self, model, images):
        images = normalize(images).contiguous(memory_format=torch.channels_last)
        if self.args.amp is None:
            return model(images)
        with torch.autocast(self.device.type, getattr(torch, self.args.amp)):
            return model(images).float()


def _checkpoint() -> Path:
    return Path(os.environ.get("CHECKPOINT_DIR", "."), "checkpoint.pt")


def _hits(logits, labels):
    best = logits.topk(min(5, logits.shape[1]), dim=1).indices == labels[:, None]
    return best[:, 0].sum().float(), best.sum().float()


def train_epoch(training: Training, batches, epoch: int, steps: int, say, events) -> float:
    """``steps`` steps; the seconds that they took."""
    args, gang, device = training.args, training.gang, training.device
    begun = time.perf_counter()
    seen = torch.zeros(3, device=device)
    for step, (images, labels) in enumerate(itertools.islice(batches, steps)):
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        seen += training.step(images, labels, epoch + step / steps)
        if (step + 1) % args.log_every == 0:
            loss = seen[0].item() / (step + 1)
            rate = (step + 1) * args.batch_size * gang.size / (time.perf_counter() - begun)
            say(f"epoch {epoch + 1}/{args.epochs}  step {step + 1}/{steps}  loss {loss:.4f}  {rate:.1f} images/sec")
            if events:
                events.add_scalar("train/loss", loss, epoch * steps + step + 1)
                events.add_scalar("train/images_per_second", rate, epoch * steps + step + 1)
    loss, first, five = gang.sum(seen.tolist())  # also waits for the device
    seconds = time.perf_counter() - begun
    images = steps * args.batch_size * gang.size
    rate = learning_rate(args, gang.size, epoch + (steps - 1) / steps)
    say(
        f"epoch {epoch + 1}/{args.epochs}  loss {loss / steps / gang.size:.4f}  top-1 {first / images:.4f}  "
        f"top-5 {five / images:.4f}  learning rate {rate:g}  {images / seconds:.1f} images/sec"
    )
    if events:
        scalars = {"loss": loss / steps / gang.size, "top_1": first / images, "top_5": five / images, "lr": rate}
        for name, value in scalars.items():
            events.add_scalar(f"epoch/{name}", value, epoch + 1)
    return seconds


def main() -> None:
    args = options(__doc__.split("\n")[0])
    gang = join()
    torch.manual_seed(args.seed + gang.rank)  # noise differs between processes; the weights get equal in wrap()
    torch.backends.cudnn.benchmark = True

    def say(line: str) -> None:
        if gang.rank == 0:
            print(line, flush=True)

    source = validation = None
    if not args.synthetic:
        source, validation = (find(Path(args.data_dir), split) for split in ("train", "validation"))
        if source is None:
            raise SystemExit(f"there are no images to train on in {args.data_dir}")
    args.classes = args.classes or (len(source.classes) if source else 1000)
    images = len(source) if source else args.data_length
    steps = max(1, images // (args.batch_size * gang.size))

    training = Training(args, gang)
    print(f"rank {gang.rank} of {gang.size} on {training.device}", flush=True)
    noise = None if source else Noise(args, training.device)

    def train_steps(count: int) -> None:
        for pixels, labels in itertools.islice(noise, count):
            done = training.step(pixels, labels, 0)
        if count:
            done.sum().item()  # waits for the device

    accuracy: dict[str, float] = {}
    if args.benchmark:
        facts = {"framework": "pytorch", "device": training.device.type, "devices": gang.size}
        facts |= {"batch_size": args.batch_size, "distribution": gang.name}
        rate = measure(args, train_steps, gang.sum, say, **facts)
    else:
        events = SummaryWriter(args.tensorboard) if gang.rank == 0 else None
        seconds = 0.0
        for epoch in range(training.epoch, args.epochs):
            # The order and the crops belong to the epoch, so a resume has the same.
            batches = noise or loader(source, args, gang, epoch, training.device)
            seconds += train_epoch(training, batches, epoch, steps, say, events)
            if validation:
                top_1, top_5 = training.validate(loader(validation, args, gang, None, training.device))
                accuracy = {"top_1": top_1, "top_5": top_5}
                say(f"epoch {epoch + 1}/{args.epochs}  validation top-1 {top_1:.4f}  top-5 {top_5:.4f}")
                for name, value in accuracy.items() if events else ():
                    events.add_scalar(f"validation/{name}", value, epoch + 1)
            training.save(epoch + 1)
        if events:
            events.close()
            torch.save(training.net.state_dict(), Path(os.environ.get("RESULT_DIR", "."), "model.pt"))
        trained = (args.epochs - training.epoch) * steps * args.batch_size * gang.size
        rate = trained / seconds if seconds else 0.0

    if gang.rank == 0:
        summary(
            images=images,
            validation_images=len(validation) if validation else 0,
            synthetic=args.synthetic,
            seconds=time.monotonic() - STARTED,
            images_per_second=rate,
            batch_size=args.batch_size,
            devices=gang.size,
            device=training.device.type,
            distribution=gang.name,
            **accuracy,
        )
    gang.close()


if __name__ == "__main__":
    main()
