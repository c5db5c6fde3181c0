"""``python braked.py SAVE GO SECONDS PROGRAM [ARGUMENT …]``: an example that waits after each save until GO is there,
or for so many seconds. SAVE is the function with which a save ends, such as pathlib.Path.replace.

Waiting costs no processor. A learner that is to join meanwhile is soon there, and one that is to be killed is alive.
"""

import pkgutil
import runpy
import sys
import time
from pathlib import Path

place, _, name = sys.argv[1].rpartition(".")
owner = pkgutil.resolve_name(place)
save = getattr(owner, name)
GO, SECONDS = Path(sys.argv[2]), float(sys.argv[3])


def save_and_wait(*arguments, **options) -> None:
    save(*arguments, **options)
    until = time.monotonic() + SECONDS
    while not GO.exists() and time.monotonic() < until:
        time.sleep(0.1)


setattr(owner, name, save_and_wait)
sys.argv = sys.argv[4:]
runpy.run_path(sys.argv[0], run_name="__main__")
