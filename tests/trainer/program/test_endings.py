"""The words for a program's end: a lack of GPU memory is recognized by the exception that ended the program."""

from __future__ import annotations

import pytest
from tests.trainer.agents import Launch
from tests.trainer.conftest import StartApi

from weft_trainer.program.endings import describe

TRACEBACK = "Traceback (most recent call last):"
CAUSED = "The above exception was the direct cause of the following exception:"
MEANWHILE = "During handling of the above exception, another exception occurred:"
TORCH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a total capacity of 31.47 GiB "
    "of which 12.73 GiB is free. Including non-PyTorch memory, this process has 18.73 GiB memory in use."
)
AMOUNTS = "Tried to allocate 22.78 GiB. GPU 0 has a total capacity of 31.47 GiB of which 12.73 GiB is free"
TENSOR = "OOM when allocating tensor with shape[128,3] and type float on /job:localhost/replica:0/task:0/device:GPU:0"


@pytest.mark.parametrize(
    ("lines", "amounts"),
    [
        ([TRACEBACK, TORCH], AMOUNTS),
        (
            [f"[rank0]: {TORCH}", "[rank0]:[W1122 08:00:00 socket.cpp:1] destroy_process_group() was not called"],
            AMOUNTS,
        ),
        ([f"[2] [rank6]: {TORCH}"], AMOUNTS),  # of one of a learner's processes
        (
            ["torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.26 GiB (GPU 0; 6.00 GiB total"],
            "2.26 GiB",
        ),
        (["RuntimeError: CUDA error: out of memory", "CUDA kernel errors might be reported later"], ""),
        (["RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"], ""),
        ([f"tensorflow.python.framework.errors_impl.ResourceExhaustedError: {TENSOR} by allocator GPU_0_bfc"], ""),
        (
            [
                "ResourceExhaustedError: Graph execution error:",
                "",
                "Detected at node x",
                f"{TENSOR} by allocator GPU_0_bfc",
            ],
            "",
        ),
        (
            ["jax.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 68719476736 bytes"],
            "",
        ),
        (["cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,000,000,000 bytes"], ""),
        ([TRACEBACK, TORCH, "", CAUSED, "", TRACEBACK, "RuntimeError: epoch 3 failed"], AMOUNTS),
    ],
)
def test_a_gpu_without_memory_left(lines: list[str], amounts: str) -> None:
    ending = describe(1, "python train.py", lines)
    assert ending.exit_code == 1
    assert ending.reason.startswith("the GPU ran out of memory (exit code 1): ")
    assert amounts in ending.reason
    assert "a smaller batch, mixed precision or gradient checkpointing" in ending.reason


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, "
        "but not set",
        "KeyError: 'LOCAL_RANK'",
    ],
)
def test_a_program_that_needs_a_launcher(line: str) -> None:
    ending = describe(1, "python train.py", [TRACEBACK, line])
    assert ending.reason == "exit code 1; `framework: {launcher: torchrun}` sets RANK, WORLD_SIZE and the rest"
    assert describe(1, "python train.py", [TRACEBACK, line, TRACEBACK, "ValueError: x"]).reason == "exit code 1"


@pytest.mark.parametrize(
    "lines",
    [
        [f"step 7 left out: {TORCH}"],  # the program's own words, then `sys.exit(1)`
        [TRACEBACK, TORCH, "batch size 32 instead", TRACEBACK, "ValueError: no checkpoint"],  # caught, and overcome
        [TRACEBACK, "KeyError: 1", "", CAUSED, "", TRACEBACK, "ValueError: no checkpoint"],
        [TRACEBACK, TORCH, "", MEANWHILE, "", TRACEBACK, "PermissionError: log.txt"],
        [f"ResourceExhaustedError: {TENSOR.replace('GPU', 'CPU')}"],  # the machine's memory
        ["MemoryError"],
        [],
    ],
)
def test_any_other_end(lines: list[str]) -> None:
    assert describe(1, "python train.py", lines).reason == "exit code 1"


def test_the_kernels_kill_for_memory_is_another() -> None:
    assert describe(-9, "x", [TORCH], "out of memory").reason == "killed by signal 9 (SIGKILL), out of memory"
    assert describe(137, "x", [TORCH], "out of memory").reason == "exit code 137 (signal 9, SIGKILL, out of memory)"


def test_a_real_traceback_through_the_agent(start_api: StartApi, launch: Launch) -> None:
    """As PyTorch raises it: a class that says it is of the module torch, from some calls deep."""
    program = f"""python - <<'END'
class OutOfMemoryError(RuntimeError):
    __module__ = "torch"
def forward(depth):
    if depth:
        return forward(depth - 1)
    raise OutOfMemoryError({TORCH.partition(": ")[2]!r})
forward(40)
END"""
    api = start_api(program)
    assert launch(api).wait() == 1
    assert AMOUNTS in api.learners[0].exit_reason
