"""Two processes of one of imagenet-resnet50's programs, with one set of options after the other, and the results, as
JSON.

Started by test_imagenet_runs.py under horovodrun or torchrun, in the example's environment. The values that are sent to
be averaged are only recorded.
"""

import contextlib
import io
import json
import os
import shutil
import sys
from pathlib import Path

WORK = Path(sys.argv[1])
OPTIONS = (
    "--synthetic --data-length 24 --depth 18 --width 8 --image-size 32 --classes 3 --batch-size 4 --log-every 1 "
    "--base-lr 1 --warmup-epochs 0.5 --decay-epochs 1 --decay-factor 0.5"
)
RANK = int(os.environ.get("HOROVOD_RANK", os.environ.get("RANK", "0")))
sent: set[str] = set()


def watch(module, name: str) -> None:
    """Note the type of whatever goes through this function, by the name that all frameworks have for it."""
    through = getattr(module, name)

    def noting(tensor, *args, **kwargs):
        sent.add(getattr(tensor.dtype, "name", str(tensor.dtype).removeprefix("torch.")))
        return through(tensor, *args, **kwargs)

    setattr(module, name, noting)


def run(folder: str, *more: str) -> dict:
    """One call of main(), which goes on after the checkpoint that lies in the folder."""
    place = WORK / folder
    place.mkdir(exist_ok=True)
    for variable in ("RESULT_DIR", "CHECKPOINT_DIR"):
        os.environ[variable] = str(place)
    train.CHECKPOINTS = place  # of Keras's program, which reads the variable once
    sys.argv = ["train.py", *OPTIONS.split(), "--tensorboard", str(place / "tensorboard"), *more]
    sent.clear()
    if not hasattr(train, "torch"):
        train.keras.backend.clear_session()  # layers are numbered from 1 again, in both processes
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        train.main()
    return {
        "lines": said.getvalue().splitlines(),
        "sent": sorted(sent),
        "weights": weights(place) if not RANK else None,
    }


@contextlib.contextmanager
def first_checkpoint_also_in(folder: str):
    """What a job leaves that is interrupted after its first epoch. The programs rename each finished checkpoint."""
    replace = Path.replace
    (WORK / folder).mkdir(exist_ok=True)

    def copying(part: Path, target: Path) -> Path:
        Path.replace = replace
        done = replace(part, target)
        shutil.copy2(target, WORK / folder)
        return done

    Path.replace = copying
    yield
    Path.replace = replace


def weights(place: Path) -> list[float]:
    """Of the stored model: the sum and the sum of squares of each tensor."""
    if (place / "model.pt").exists():
        values = [tensor.double().numpy() for tensor in torch.load(place / "model.pt", weights_only=True).values()]
    else:
        values = keras.models.load_model(place / "model.keras").get_weights()
    return [float(number) for array in values for number in (array.sum(), (array.astype("float64") ** 2).sum())]


def stay_together() -> None:
    """In place of Horovod's shutdown(), which it calls itself at the end: a process that meets the others again finds
    the address that a slower one had before."""


os.environ.setdefault("RESULT_DIR", str(WORK))
import model  # noqa: E402
import train  # noqa: E402

model.BLOCKS[18] = (model.BLOCKS[18][0], (1, 1))  # two blocks show the same as eight, in half the time

if hasattr(train, "torch"):
    import torch
    import torch.distributed

    watch(torch.distributed, "all_reduce")
    if "LOCAL_RANK" in os.environ:  # its processes can meet only once under one torchrun
        torch.distributed.init_process_group("gloo")
        torch.distributed.init_process_group = torch.distributed.destroy_process_group = lambda *_: None
    with contextlib.suppress(ImportError):  # not in PyTorch's own image
        import horovod.torch.optimizer

        watch(horovod.torch.optimizer, "allreduce_async_")
        horovod.torch.shutdown = stay_together
else:
    import horovod.tensorflow
    import keras

    watch(horovod.tensorflow, "_allreduce")
    horovod.tensorflow.shutdown = stay_together

with first_checkpoint_also_in("resumed"):
    undisturbed = run("undisturbed", "--epochs", "2")
cases = {
    "undisturbed": undisturbed,
    "resumed": run("resumed", "--epochs", "2"),
    "fp16": run("fp16", "--epochs", "2", "--fp16-allreduce"),
}
(WORK / f"found-{RANK}.json").write_text(json.dumps(cases))
