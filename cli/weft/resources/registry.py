"""The registry of models: results of jobs, under names and version numbers."""

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
    """``mnist@3`` as ``("mnist", "3")``; without a version, the version is ``latest``.

    Raises:
        WeftError: the text has another form.
    """
    name, at, version = reference.partition("@")
    if not name or (at and not version) or "@" in version:
        raise WeftError(f"{reference!r} is not a model; expected NAME or NAME@VERSION (a number, a stage, or latest)")
    return name, version or "latest"


def _path(name: str, *rest: str) -> str:
    return "/".join(["/models", segment(name), *(segment(part) for part in rest)])


class Models:
    """The models of the token's project. Every method may raise a :class:`~weft.errors.WeftError`.

    A ``reference`` is ``NAME@NUMBER``, ``NAME@STAGE``, ``NAME@latest``, or ``NAME``, which means the latest version.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, q: str | None = None) -> Iterator[Model]:
        """All models, by name. The iteration fetches further pages when it needs them.

        Args:
            q: only models with this text in the name.
        """
        for page in self._pages("/models", {"q": q}):
            yield from (Model.from_json(model) for model in page.get("models") or [])

    def get(self, name: str) -> Model:
        """One model, with the history of its stages.

        Raises:
            NotFound: there is no such model.
        """
        return Model.from_json(self._transport.json("GET", _path(name)))

    def versions(self, name: str) -> Iterator[ModelVersion]:
        """The versions of a model, newest first.

        Raises:
            NotFound: there is no such model.
        """
        for page in self._pages(_path(name, "versions"), {}):
            yield from (ModelVersion.from_json(version) for version in page.get("versions") or [])

    def version(self, reference: str) -> ModelVersion:
        """One version, with its lineage.

        Raises:
            NotFound: there is no such version.
        """
        name, version = split_reference(reference)
        return ModelVersion.from_json(self._transport.json("GET", _path(name, "versions", version)))

    def register(self, job_id: str, name: str) -> ModelVersion:
        """Make the results of a completed job the next version of a model. Results that are a version already stay so.

        Raises:
            Conflict: the job is not COMPLETED.
            NotFound: there is no such job.
        """
        return ModelVersion.from_json(self._transport.json("POST", _path(name, "versions"), json={"job": job_id}))

    def edit(self, reference: str, *, notes: str) -> ModelVersion:
        """Replace the notes of a version.

        Args:
            notes: Markdown for the users of the project.

        Raises:
            NotFound: there is no such version.
        """
        name, version = split_reference(reference)
        answer = self._transport.json("PATCH", _path(name, "versions", version), json={"notes": notes})
        return ModelVersion.from_json(answer)

    def promote(self, reference: str, stage: str) -> Model:
        """Move a stage to a version.

        Raises:
            NotFound: there is no such version.
        """
        name, version = split_reference(reference)
        return Model.from_json(self._transport.json("PUT", _path(name, "stages", stage), json={"version": version}))

    def demote(self, name: str, stage: str) -> Model:
        """Remove a stage.

        Raises:
            NotFound: the model has no such stage.
        """
        return Model.from_json(self._transport.json("DELETE", _path(name, "stages", stage)))

    def delete(self, name: str, version: int | None = None) -> None:
        """Remove a version, or the model with all its versions.

        Raises:
            Conflict: the version has a stage, or an unfinished job starts from it.
            NotFound: there is no such version.
        """
        rest = () if version is None else ("versions", str(version))
        self._transport.request("DELETE", _path(name, *rest))

    def files(self, reference: str) -> Sequence[FileInfo]:
        """The files of a version that are in the store now.

        Raises:
            NotFound: there is no such version.
            ApiError: the files are gone.
        """
        name, version = split_reference(reference)
        page = self._transport.json("GET", _path(name, "versions", version, "files"))
        return [FileInfo.from_json(file) for file in page.get("files") or []]

    def download(self, reference: str, target: str | Path, progress: Progress = silent) -> Path:
        """Download the files of a version as a zip.

        Raises:
            TransferError: the download failed.
            NotFound: there is no such version.
            ApiError: the files are gone.
        """
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
