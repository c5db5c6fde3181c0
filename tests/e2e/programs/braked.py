"""``python braked.py GO SECONDS PROGRAM [ARGUMENT …]``: an example that waits after each save until GO is there, or for
so many seconds.

Waiting costs no processor, so a learner that is to join meanwhile is soon there.
"""

import runpy
import sys
import time
from pathlib import Path

import torch

GO, SECONDS = Path(sys.argv[1]), float(sys.argv[2])
save = torch.save


def save_and_wait(*arguments, **options) -> None:
    save(*arguments, **options)
    until = time.monotonic() + SECONDS
    while not GO.exists() and time.monotonic() < until:
        time.sleep(0.1)


torch.save = save_and_wait
sys.argv = sys.argv[3:]
runpy.run_path(sys.argv[0], run_name="__main__")
