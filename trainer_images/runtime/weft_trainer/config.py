"""The settings of an agent, which the engine passes by environment variables."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from weft_trainer.reprs import repr_without

TOKEN_VARIABLE = "WEFT_ATTEMPT_TOKEN"  # noqa: S105 - its name, not its value
URL_VARIABLE = "WEFT_API_URL"
RUNTIME = Path(__file__).resolve().parent.parent
"""The folder that holds the package ``weft_trainer``, for PYTHONPATH."""
STUB = Path(__file__).resolve().parent / "stub"
"""The folder that holds ``weft`` for a program whose environment lacks it, for the end of PYTHONPATH."""


class ConfigError(Exception):
    """A variable is missing or makes no sense."""


class Config(NamedTuple):
    api_url: str
    token: str
    rank: int  # from 0
    learners: int
    workdir: Path
    """This learner's own folder."""
    cache_dir: Path
    """The node's cache, shared by all learners on it."""
    cache_size: int | None = None
    """Bytes that it may take; None: a share of the disk."""
    shared_dir: Path | None = None
    """A folder that all learners of the attempt see, if the engine has one: becomes JOB_STATE_DIR."""
    advertise_address: str | None = None
    published_port: int | None = None
    """The one port of this learner that its node leads to from outside of the gang's network: WEFT_PORT."""
    grace_seconds: float | None = None
    hidden: tuple[Path, ...] = ()
    """Folders that the user's program must not see, but for those of this learner in them. Any: the agent runs in a
    sandbox of the local engine's, and may narrow the program's view further."""
    leftovers: bool = False
    """Whether the agent is not a learner, and only sends the log and metrics that a dead agent left here."""

    def __repr__(self) -> str:
        return repr_without(self, "token")

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Config:
        """Raises: ConfigError."""
        workdir = Path(_required(env, "WEFT_WORKDIR")).absolute()
        shared = env.get("WEFT_SHARED_DIR")
        grace = env.get("WEFT_GRACE_SECONDS")
        cache_size = env.get("WEFT_CACHE_SIZE")
        published = env.get("WEFT_PUBLISHED_PORT")
        try:
            return cls(
                api_url=_required(env, URL_VARIABLE).rstrip("/"),
                token=_required(env, TOKEN_VARIABLE),
                rank=int(_required(env, "WEFT_RANK")),
                learners=int(_required(env, "WEFT_NUM_LEARNERS")),
                workdir=workdir,
                cache_dir=Path(env.get("WEFT_CACHE_DIR") or workdir / "cache").absolute(),
                cache_size=int(cache_size) if cache_size else None,
                shared_dir=Path(shared).absolute() if shared else None,
                advertise_address=env.get("WEFT_ADVERTISE_ADDRESS") or None,
                published_port=int(published) if published else None,
                grace_seconds=float(grace) if grace else None,
                hidden=tuple(Path(folder) for folder in env.get("WEFT_SANDBOX", "").split(os.pathsep) if folder),
                leftovers=bool(env.get("WEFT_LEFTOVERS")),
            )
        except ValueError as error:
            raise ConfigError(
                "WEFT_RANK, WEFT_NUM_LEARNERS, WEFT_GRACE_SECONDS, WEFT_CACHE_SIZE, WEFT_PUBLISHED_PORT must be "
                f"numbers: {error}"
            ) from None


def derive_secret(token: str, label: str) -> str:
    """A secret for the purpose ``label``, which every learner of the attempt can derive from its ``token``, and nobody
    without it. The training code may see it: the token can't be computed from it."""
    return hmac.new(token.encode(), f"weft {label}".encode(), hashlib.sha256).hexdigest()


def _required(env: Mapping[str, str], name: str) -> str:
    value = env.get(name)
    if not value:
        raise ConfigError(f"{name} is not set: an engine starts the agent with it")
    return value
