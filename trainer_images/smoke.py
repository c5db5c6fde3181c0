"""Does an image work? ``python smoke.py IMAGE VARIANT`` in the image itself, or in its environment on this machine.

Imports what the image is for, trains a step, and lets two processes add their ranks through what a gang would use. It
needs no GPU; of the variant `cuda` it checks that the builds are those for CUDA. Prints a line for each check; the
first that fails ends it with its traceback and exit code 1.
"""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta

_AGENT = ("weft_trainer", "boto3", "psutil")
_TWO = 2
_SECOND = "second"  # in place of an image's name: the second process of `torchrun`


def agent() -> None:
    for name in _AGENT:
        importlib.import_module(name)


def python(_: bool) -> None:
    import numpy

    assert numpy.arange(4).sum() == 6


def pytorch(cuda: bool) -> None:
    import torch

    if cuda:
        assert torch.version.cuda, f"torch {torch.__version__} is not a build for CUDA"
        assert torch.distributed.is_nccl_available()
    else:
        assert torch.version.cuda is None, (
            f"torch {torch.__version__} is a build for CUDA {torch.version.cuda}: "
            "give the index of PyTorch's CPU builds as PIP_EXTRA_INDEX_URL"
        )
    model = torch.nn.Linear(4, 1)
    before = model.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    assert not torch.equal(before, model.weight)


def torchrun(_: bool) -> None:
    """This process is one of the two, as it has PyTorch already."""
    address = f"tcp://127.0.0.1:{free_port()}"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    with subprocess.Popen([sys.executable, __file__, _SECOND, address], env=environment) as second:
        add_ranks(address, 0)
        assert second.wait(timeout=300) == 0


def add_ranks(address: str, rank: int) -> None:
    import torch.distributed

    torch.distributed.init_process_group("gloo", address, timedelta(seconds=300), _TWO, rank)
    number = torch.tensor([rank + 1])
    torch.distributed.all_reduce(number)
    torch.distributed.barrier()
    assert number.item() == 3
    torch.distributed.destroy_process_group()


def tensorflow(cuda: bool) -> None:
    import tensorflow as tf

    assert tf.test.is_built_with_cuda() is cuda, f"tensorflow {tf.__version__} is for {'CPUs' if cuda else 'CUDA'}"
    weights = tf.Variable(tf.ones((4, 1)))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.ones((2, 4)) @ weights)
    weights.assign_sub(0.1 * tape.gradient(loss, weights))
    assert abs(float(weights[0, 0]) - 0.8) < 1e-6


def horovod(cuda: bool) -> None:
    """Both frameworks have the module; an image has one of them."""
    found = [name for name in ("torch", "tensorflow") if importlib.util.find_spec(name)]
    assert len(found) == 1, found
    module = importlib.import_module(f"horovod.{found[0]}")
    assert module.gloo_built(), "Horovod is built without Gloo"
    assert bool(module.nccl_built()) is cuda, f"Horovod is built {'without' if cuda else 'with'} NCCL"
    tensor = "torch.tensor([r])" if found[0] == "torch" else "tf.constant([r])"
    start = "import torch" if found[0] == "torch" else "import tensorflow as tf"
    program = (
        f"{start}, horovod.{found[0]} as h; h.init(); r = h.rank() + 1.0; "
        f"assert h.allreduce({tensor}, op=h.Sum).numpy()[0] == 3"
    )
    command = [sys.executable, "-m", "horovod.runner.launch", "-np", str(_TWO), "--gloo", sys.executable, "-c", program]
    subprocess.run(command, check=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})


def ray(_: bool) -> None:
    import ray
    import ray.train.torch
    from horovod.ray import RayExecutor

    assert callable(RayExecutor)

    @ray.remote
    def double(number: int) -> int:
        return 2 * number

    os.environ["RAY_AUTH_MODE"] = "disabled"  # else it leaves a token in the home folder
    ray.init(num_cpus=_TWO, include_dashboard=False, log_to_driver=False)
    try:
        assert ray.get([double.remote(number) for number in range(4)]) == [0, 2, 4, 6]
    finally:
        ray.shutdown()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


CHECKS: dict[str, list[Callable[[bool], None]]] = {
    "python": [python],
    "pytorch": [pytorch, torchrun],
    "tensorflow": [tensorflow],
    "horovod:torch": [pytorch, torchrun, horovod],
    "horovod:tf": [tensorflow, horovod],
    "ray": [pytorch, torchrun, ray],
}


def checks(image: str) -> list[Callable[[bool], None]]:
    """The checks of an image such as ``horovod:0.28.1-tf2.21``."""
    name, _, version = image.partition(":")
    if name == "horovod":
        name += ":tf" if "-tf" in version else ":torch"
    return CHECKS[name]


def main(image: str, variant: str) -> None:
    print(f"{image} ({variant}), Python {sys.version.split()[0]}", flush=True)
    agent()
    print("  agent: ok", flush=True)
    for check in checks(image):
        check(variant == "cuda")
        print(f"  {check.__name__}: ok", flush=True)


if __name__ == "__main__":
    sys.path.pop(0)  # this folder has one named `tensorflow`
    if sys.argv[1] == _SECOND:
        add_ranks(sys.argv[2], rank=1)
    else:
        main(*sys.argv[1:])
