"""PyTorch's process groups end without harm, whichever object holds the last reference to them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.environments import FIRST_RUN, python_of

from weft_trainer.program import at_exit

_PROGRAM = """
import at_exit  # a learner's environment does it
import torch
from torch.distributed import HashStore, all_gather, destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel

def train():
    init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    all_gather([torch.zeros(1)], torch.ones(1), async_op=True).wait()
    destroy_process_group()

for _ in range(300):
    train()
print("done")
"""


@pytest.mark.timeout(FIRST_RUN)
def test_a_program_that_destroys_its_group_before_its_model_goes_does_not_hang() -> None:
    """Without the hook, one of the first fifty rounds hangs on two cores."""
    folder = str(Path(at_exit.__file__).parent)
    command: list[str | Path] = [python_of("pytorch:2.13.0"), "-c", _PROGRAM]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": folder}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
