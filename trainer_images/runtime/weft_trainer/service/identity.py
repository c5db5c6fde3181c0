"""The identity token, in a file from which the program reads the newest one."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from weft_trainer.errors import ApiError, Fenced, warn
from weft_trainer.service.mask import Mask
from weft_trainer.spec import IdentityToken

_AGAIN = 15.0
"""Seconds after which a token that could not be had is asked for again."""
_LOOK = 30.0
"""Seconds between two checks of the clock: a machine that was suspended has slept through the time to renew."""


def keep_token(first: IdentityToken, path: Path, renew: Callable[[], IdentityToken], mask: Mask) -> None:
    """Write the token to ``path``, and renew it at half time as long as this process lives and the attempt lasts."""
    _write(path, first.token)
    threading.Thread(target=_renew, args=(first, path, renew, mask), name="identity", daemon=True).start()


def _write(path: Path, token: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(token)
    draft.replace(path)


def _renew(token: IdentityToken, path: Path, renew: Callable[[], IdentityToken], mask: Mask) -> None:
    due = time.time() + token.seconds / 2
    while True:
        if (left := due - time.time()) > 0:
            time.sleep(min(left, _LOOK))
            continue
        try:
            token = renew()
            mask.learn([token.token])
            _write(path, token.token)
            due = time.time() + token.seconds / 2
        except Fenced:
            return
        except (ApiError, OSError) as error:
            warn(f"the identity token can't be renewed yet: {error}")
            due = time.time() + _AGAIN
