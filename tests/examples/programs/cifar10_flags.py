"""Two processes of cifar10-resnet18 with one flag after the other, and the effects of each, as JSON.

Started by test_cifar10_flags.py under horovodrun, in the example's environment. Nothing is replaced: the data that
passes through the network, the optimizer and Horovod is only recorded.
"""

import contextlib
import io
import json
import shutil
import sys
from pathlib import Path

import horovod.torch as hvd
import horovod.torch.optimizer as horovod_optimizer
import torch
import train
from model import ResNet18, read_images
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

WORK = Path(sys.argv[1])
# With fewer than 8 channels, oneDNN 3.12 (in torch 2.13) writes past its memory on machines with AVX2 and no AVX-512:
# jit_avx2_1x1_convolution_bwd_weights.
BASE = {"epochs": 1, "batch-size": 10, "warmup-epochs": 0, "width": 8, "lr": 0.1, "log-every": 1}


class Seen:
    """What one run did in this process."""

    def __init__(self) -> None:
        self.steps: list[dict] = []  # each step of the optimizer: its settings
        self.sent: list[tuple[str, int]] = []  # each gradient handed to Horovod: type and bytes
        self.passes: list[int] = []  # images of each forward pass while training
        self.tests: list[int] = []  # and while testing
        self.inputs: list[torch.Tensor] = []


seen = Seen()


def on_step(optimizer, *_) -> None:
    group = optimizer.param_groups[0]
    # Once where DistributedOptimizer's step() calls SGD's, and not where broadcast_optimizer_state makes the state.
    if seen.passes and (not seen.steps or seen.steps[-1]["after"] != len(seen.passes)):
        seen.steps.append(
            {**{key: group[key] for key in ("lr", "momentum", "weight_decay")}, "after": len(seen.passes)}
        )


def on_forward(module, inputs) -> None:
    if isinstance(module, ResNet18):
        (seen.passes if module.training else seen.tests).append(len(inputs[0]))
        if module.training:
            seen.inputs.append(inputs[0].clone())


def on_send(tensor, *args, **kwargs):
    seen.sent.append((str(tensor.dtype), tensor.numel() * tensor.element_size()))
    return send(tensor, *args, **kwargs)


register_optimizer_step_pre_hook(on_step)
register_module_forward_pre_hook(on_forward)
send, horovod_optimizer.allreduce_async_ = horovod_optimizer.allreduce_async_, on_send


def words(changes: dict) -> list[str]:
    made = []
    for flag, value in (BASE | changes).items():
        made += [f"--{flag}"] if value is True else [f"--{flag}", str(value)]
    return made


def run(folder: str, stop_after: int | None = None, pretrained: str | None = None, **flags) -> dict:
    """One call of train(), in folders of its own unless an earlier run's name is given again."""
    global seen
    seen = Seen()
    train.RESULTS, train.CHECKPOINT = WORK / folder / "results", WORK / folder / "checkpoint" / "checkpoint.pt"
    train.PRETRAINED = str(WORK / pretrained / "results") if pretrained else None
    for made in (train.RESULTS, train.CHECKPOINT.parent):
        made.mkdir(parents=True, exist_ok=True)
    hvd.barrier()
    said, failure, whole = io.StringIO(), None, train.train_epoch

    def interrupted(model, optimizer, images, labels, epoch, args):
        if epoch == stop_after:
            raise InterruptedError
        return whole(model, optimizer, images, labels, epoch, args)

    train.train_epoch = interrupted
    try:
        with contextlib.redirect_stdout(said), contextlib.suppress(InterruptedError):
            train.train(train.arguments(words({name.replace("_", "-"): value for name, value in flags.items()})))
    except SystemExit as exit_:
        failure = str(exit_)
    finally:
        train.train_epoch = whole
    hvd.barrier()
    stored = train.RESULTS / "model.pt"
    model = torch.load(stored, weights_only=True) if stored.exists() else None
    return {
        "steps": seen.steps,
        "sent": len(seen.sent),
        "sent_types": sorted({kind for kind, _ in seen.sent}),
        "sent_bytes": sum(size for _, size in seen.sent),
        "passes": seen.passes,
        "tests": seen.tests,
        "first_images": sorted(int(image.long().sum()) for image in seen.inputs[0]) if seen.inputs else [],
        "weights": [float(tensor.double().sum()) for tensor in model["model"].values()] if model else None,
        "stored_types": sorted({str(tensor.dtype) for tensor in model["model"].values()}) if model else None,
        "lines": said.getvalue().splitlines(),
        "failure": failure,
    }


def devices() -> dict:
    """The device that is chosen where there is a GPU with NCCL, which this program pretends."""
    found = {}
    real = torch.cuda.is_available, hvd.nccl_built, torch.cuda.set_device
    torch.cuda.is_available, hvd.nccl_built, torch.cuda.set_device = lambda: True, lambda: True, lambda _: None
    for name, given in (("with", []), ("without", ["--no-cuda"])):
        found[name] = str(train.choose_device(train.arguments(given)))
    torch.cuda.is_available, hvd.nccl_built, torch.cuda.set_device = real
    return found


def main() -> None:
    hvd.init()
    images, _ = read_images(train.DATA, "data_batch")
    cases = {
        "base": run("base"),
        "again": run("again"),
        "lr": run("lr", lr=0.2),
        "epochs": run("epochs", epochs=2),
        "batch_size": run("batch_size", batch_size=20),
        "batches_per_allreduce": run("batches_per_allreduce", batches_per_allreduce=4),
        "uneven": run("uneven", batches_per_allreduce=3),
        "fp16_allreduce": run("fp16_allreduce", fp16_allreduce=True),
        "warmup": run("warmup", epochs=3, warmup_epochs=2),
        "momentum": run("momentum", momentum=0.5),
        "weight_decay": run("weight_decay", weight_decay=0.1),
        "label_smoothing": run("label_smoothing", label_smoothing=0.5),
        "no_augment": run("no_augment", no_augment=True, log_every=2, test_batch_size=3),
        "width": run("width", width=16, stop_after=0),
        "seed": run("seed", seed=2, no_augment=True),
        "interrupted": run("interrupted", epochs=2, stop_after=1),
    }
    if hvd.rank() == 0:
        for copy in ("no_resume", "resume", "other_width"):
            shutil.copytree(WORK / "interrupted", WORK / copy)
    cases |= {
        "undisturbed": cases["epochs"],
        "resumed": run("interrupted", epochs=2),
        "no_resume": run("no_resume", epochs=2, no_resume=True),
        "resume": run("resume", epochs=2, resume=True),
        "resume_nothing": run("resume_nothing", resume=True),
        "resume_earlier_job": run("resume_earlier_job", epochs=2, resume=True, pretrained="base"),
        "resume_whole": run("epochs", epochs=2, resume=True),
        "other_width": run("other_width", width=16),
    }
    found = {"cases": cases, "devices": devices(), "images": sorted(int(image.long().sum()) for image in images)}
    (WORK / f"found-{hvd.rank()}.json").write_text(json.dumps(found))
    hvd.shutdown()


if __name__ == "__main__":
    main()
