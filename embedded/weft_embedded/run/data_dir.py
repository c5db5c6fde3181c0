"""Fills DATA_DIR and WEFT_STREAM_DIR from training data on this machine, without copying it.

The agent's own code chooses the files of each learner, so the choice is the same here and in the service.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft_core.manifest import TrainingData
from weft_embedded.run.request import RunError
from weft_trainer.errors import DataError
from weft_trainer.inputs.selection import select, share
from weft_trainer.spec import DataInput, S3Location
from weft_trainer.stores.store import Stored


@dataclass(frozen=True)
class LocalInput:
    """A folder in place of a data store's training data."""

    id: str
    folder: Path
    how: TrainingData

    @property
    def whole(self) -> bool:
        """Whether each learner gets all of it, as files."""
        return self.how.mode == "download" and self.how.shard == "none" and not (self.how.include or self.how.exclude)

    def chosen(self, rank: int, learners: int) -> list[Stored]:
        """The files of one learner. Raises RunError."""
        place = S3Location(endpoint="", access_key="", secret_key="", container=str(self.folder))
        how = self.how
        source = DataInput(self.id, place, how.mode, tuple(how.include), tuple(how.exclude), how.shard)
        try:
            return share(select(_files(self.folder), source), source, rank, learners)
        except DataError as error:
            raise RunError(str(error)) from None


class LinkedData:
    """One folder alone becomes DATA_DIR itself, by a link, however many files it holds. Of several, of parts, or beside
    data from S3, each file gets a link in real folders, as data stores lie side by side.

    Args:
        inputs: in manifest order.
        alone: nothing comes from S3.
        learners: how many.

    Raises:
        RunError: two of them have a file of the same path; the patterns leave nothing.
    """

    def __init__(self, inputs: Sequence[LocalInput], alone: bool, learners: int) -> None:
        self._whole = inputs[0].folder if len(inputs) == 1 and alone and inputs[0].whole else None
        self._files: list[dict[str, Path]] = [{} for _ in range(learners)]
        self._streams: list[dict[str, list[Stored]]] = [{} for _ in range(learners)]
        self.streamed = {source.id: source.folder for source in inputs if source.how.mode == "stream"}
        """By data store, the folder whose files are read by URLs."""
        if self._whole is None:
            for rank in range(learners):
                self._choose(inputs, rank, learners)

    def _choose(self, inputs: Sequence[LocalInput], rank: int, learners: int) -> None:
        owners: dict[str, str] = {}
        for source in inputs:
            chosen = source.chosen(rank, learners)
            if source.how.mode == "stream":
                self._streams[rank][source.id] = chosen
                continue
            for file in chosen:
                if file.key in owners:
                    raise RunError(f"data stores {owners[file.key]!r} and {source.id!r} both have {file.key!r}")
                owners[file.key], self._files[rank][file.key] = source.id, source.folder / file.key

    def place(self, workdir: Path, rank: int, url_of: Callable[[str, str], str]) -> Mapping[str, str]:
        """Before the agent makes the rest of its folders in ``workdir``; returns the variables for the learner's
        environment.
        ``url_of`` gives the URL of a file by data store and key."""
        if self._whole is not None:
            (workdir / "data").symlink_to(self._whole, target_is_directory=True)
        for key, path in self._files[rank].items():
            link = workdir / "data" / key
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
        if not self._streams[rank]:
            return {}
        streams = workdir / "streams"
        streams.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, files in self._streams[rank].items():
            lines = [
                {"key": file.key, "size": file.size, "etag": file.etag, "url": url_of(name, file.key)} for file in files
            ]
            (streams / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return {"WEFT_STREAM_DIR": str(streams)}


def _files(folder: Path) -> list[Stored]:
    found = []
    for parent, _, names in os.walk(folder, followlinks=True):
        for name in names:
            path = Path(parent, name)
            status = path.stat()
            etag = f"{status.st_mtime_ns:x}-{status.st_size:x}"
            found.append(Stored(path.relative_to(folder).as_posix(), status.st_size, etag, status.st_mtime))
    return found
