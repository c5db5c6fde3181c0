"""``python -m weft_trainer.launchers.horovod_worker DRIVER HOST:SLOT COMMAND…``: becomes COMMAND once it has a rank.

A worker that asks Horovod's driver for the rendezvous before it was assigned a rank would be counted as one of those
that the driver waits for just then. So it waits for its assignment first, which comes with its first environment.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request

_POLL = 0.1


def assignment(url: str) -> dict[str, str] | None:
    """Horovod's variables of this slot, as soon as there are some; None: training has ended before."""
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - http, as the agent says
                found: dict[str, str] | None = json.loads(answer.read())
                return found
        except (OSError, ValueError):  # not yet
            time.sleep(_POLL)


def main() -> None:
    driver, slot, *command = sys.argv[1:]
    variables = assignment(f"{driver}/weft-start/{slot}")
    if variables is None:
        print("weft: training has ended before this learner could join it", flush=True)
        return
    os.environ.update(variables)
    os.execvp(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main()
