"""The request of `weft run`."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class Request(BaseModel):
    """One run. Paths are absolute."""

    model_config = ConfigDict(extra="forbid")

    manifest: str
    overrides: dict[str, str] = Field(default_factory=dict)
    code: Path | None = None
    """The zip of the code."""
    folder: Path
    """The folder of all runs: each has a folder of its own in it, named for the job."""
    out: Path | None = None
    """This run's own folder, if it is to be elsewhere."""
    resume: bool = False
    data: dict[str, Path] = Field(default_factory=dict)
    """Folders in place of ``training_data``, by data store id; '' is the only one there is."""
    pretrained: Path | None = None
    results: Path | None = None
    secrets: dict[str, str | None] = Field(default_factory=dict, repr=False)
    """Values by name, of secrets and data stores that the manifest expects on a server; None: the variable that should
    hold it is not set (for a data store the AWS_… variables do)."""
    grace: float = 120.0


class RunError(Exception):
    """The run is impossible; the message, with the reason, is for the user."""
