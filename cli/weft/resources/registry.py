"""The registry of models: what jobs have left, under names and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx

from weft.errors import WeftError
from weft.models import FileInfo, Model, ModelVersion
from weft.transport.http import Transport, segment
from weft.transport.transfer import Progress, download, silent


def split_reference(reference: str) -> tuple[str, str]:
    """``mnist@3`` as ``("mnist", "3")``; without a version it is the ``latest``.

    Raises:
        WeftError: it has another form.
    """
    name, at, version = reference.partition("@")
    if not name or (at and not version) or "@" in version:
        raise WeftError(f"{reference!r} is no model; expected NAME or NAME@VERSION (a number, a stage, or latest)")
    return name, version or "latest"


def _path(name: str, *rest: str) -> str:
    return "/".join(["/models", segment(name), *(segment(one) for one in rest)])


class Models:
    """The models of the token's project. A ``reference`` is ``NAME@NUMBER``, ``NAME@STAGE``, ``NAME@latest``, or
    ``NAME``, which is the latest. Every method raises a :class:`~weft.errors.WeftError`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, q: str | None = None) -> Iterator[Model]:
        """All models, by name; further pages are fetched as the iteration reaches them. ``q``: part of the name."""
        for page in self._pages("/models", {"q": q}):
            yield from (Model.from_json(one) for one in page.get("models") or [])

    def get(self, name: str) -> Model:
        """One model, with the history of its stages. Raises NotFound."""
        return Model.from_json(self._transport.json("GET", _path(name)))

    def versions(self, name: str) -> Iterator[ModelVersion]:
        """Its versions, newest first. Raises NotFound."""
        for page in self._pages(_path(name, "versions"), {}):
            yield from (ModelVersion.from_json(one) for one in page.get("versions") or [])

    def version(self, reference: str) -> ModelVersion:
        """One version, with its lineage. Raises NotFound."""
        name, version = split_reference(reference)
        return ModelVersion.from_json(self._transport.json("GET", _path(name, "versions", version)))

    def register(self, job_id: str, name: str) -> ModelVersion:
        """Make a completed job's results the model's next version; results that are one already stay that one.

        Raises:
            Conflict: the job has not COMPLETED.
            NotFound: there is no such job.
        """
        return ModelVersion.from_json(self._transport.json("POST", _path(name, "versions"), json={"job": job_id}))

    def promote(self, reference: str, stage: str) -> Model:
        """Move a stage to a version. Raises NotFound."""
        name, version = split_reference(reference)
        return Model.from_json(self._transport.json("PUT", _path(name, "stages", stage), json={"version": version}))

    def demote(self, name: str, stage: str) -> Model:
        """Take a stage away. Raises NotFound."""
        return Model.from_json(self._transport.json("DELETE", _path(name, "stages", stage)))

    def delete(self, name: str, version: int | None = None) -> None:
        """Remove a version, or the model with all of them.

        Raises:
            Conflict: a stage is at it, or a job that has not ended starts from it.
            NotFound: there is no such version.
        """
        rest = () if version is None else ("versions", str(version))
        self._transport.request("DELETE", _path(name, *rest))

    def files(self, reference: str) -> Sequence[FileInfo]:
        """The version's files, as they are in the store now. Raises NotFound, and ApiError when they are gone."""
        name, version = split_reference(reference)
        page = self._transport.json("GET", _path(name, "versions", version, "files"))
        return [FileInfo.from_json(one) for one in page.get("files") or []]

    def download(self, reference: str, target: str | Path, progress: Progress = silent) -> Path:
        """The version's files as a zip. Raises TransferError, NotFound, and ApiError when they are gone."""
        name, version = split_reference(reference)
        path = _path(name, "versions", version, "download")

        def open_at(headers: Mapping[str, str]) -> AbstractContextManager[httpx.Response]:
            return self._transport.stream("GET", path, headers=headers)

        target = Path(target)
        download(open_at, target, progress)
        return target

    def _pages(self, path: str, params: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        cursor: str | None = None
        while True:
            page = self._transport.json("GET", path, params={**params, "limit": 100, "cursor": cursor})
            yield page
            cursor = page.get("next_cursor")
            if not cursor:
                return
