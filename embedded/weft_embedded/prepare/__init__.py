"""The objects that API and worker expect in the servers, prepared by a process for each server. Both are idempotent.

They are processes of their own, so that the supervisor neither waits for them nor carries their libraries, and they are
two, so that neither loads the other's. They read the services' settings; the last line of stderr is for the user.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

_PATIENCE = 30.0  # for servers that somebody else starts at the same time


def patiently(do: Callable[[], None], is_away: Callable[[Exception], bool], ours: bool = False) -> None:
    """Do it; a server that is away is asked again for a while.

    Args:
        is_away: whether such trouble may pass by itself.
        ours: the supervisor starts the server again when it falls, and says what is being waited for, so that there is
            no end to the patience.
    """
    deadline = time.monotonic() + (math.inf if ours else _PATIENCE)
    while True:
        try:
            return do()
        except Exception as error:
            if not is_away(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.3)
