"""The sources of a run's data and the places of its results: the manifest's S3, or folders instead."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from weft_core.launch import DataInput, S3Location
from weft_core.manifest import Credentials, DataStore, ModelReference, ParsedManifest, Place, TrainingData
from weft_embedded.run.data_dir import LocalInput
from weft_embedded.run.request import Request, RunError


@dataclass
class Stores:
    inputs: list[DataInput] = field(default_factory=list)
    """Training data that the learners fetch from S3."""
    folders: list[LocalInput] = field(default_factory=list)
    """Training data that lies here."""
    pretrained: S3Location | Path | None = None
    model: str = ""
    """The registry's name of the pretrained model, if the manifest has it from there."""
    results: S3Location | None = None
    """The container and prefix of the manifest; None: a folder."""
    notes: list[str] = field(default_factory=list)


def find_stores(request: Request, parsed: ParsedManifest, environment: Mapping[str, str] = os.environ) -> Stores:
    """Resolve the manifest's data stores. Raises RunError."""
    return _Finder(request, parsed, environment).find()


def find_wheels(
    request: Request, parsed: ParsedManifest, environment: Mapping[str, str] = os.environ
) -> list[DataInput]:
    """The wheels that the manifest of a package build has as its data. Raises RunError."""
    return _Finder(request, parsed, environment).find_wheels()


def find_secrets(request: Request, parsed: ParsedManifest) -> dict[str, str]:
    """The values of the manifest's ``secrets``, by environment variable. Raises RunError."""
    wanted = parsed.manifest.secrets
    return {variable: find_secret(request, name, f"secrets.{variable}") for variable, name in wanted.items()}


def find_secret(request: Request, name: str, path: str) -> str:
    """The value of the secret that the manifest names at ``path``. Raises RunError."""
    if name not in request.secrets:
        raise RunError(
            f"{path}: the secret {name!r} is kept on a server, and this run has none: give its value "
            f"with --secret {name} (from the environment variable {variable_of(name)}), --secret {name}=VARIABLE, "
            f"or --secret {name}=- (from standard input)"
        )
    value = request.secrets[name]
    if value is None:
        raise RunError(f"--secret {name}: the environment variable that should hold it is not set")
    return value


def variable_of(name: str) -> str:
    """The environment variable that ``--secret NAME`` reads: ``api-key`` → ``API_KEY``."""
    return "".join(letter if letter.isalnum() else "_" for letter in name).upper()


class _Finder:
    def __init__(self, request: Request, parsed: ParsedManifest, environment: Mapping[str, str]) -> None:
        self._request = request
        self._manifest = parsed.manifest
        self._credentials = parsed.credentials
        self._environment = environment
        self._opened: dict[str, S3Location] = {}

    def find(self) -> Stores:
        found = Stores()
        given = self._data_folders()
        for store, place in self._manifest.inputs:
            if store.id in given:
                found.folders.append(LocalInput(store.id, given[store.id], place))
            else:
                location = self._at(store, place, f"training_data: give a folder instead with --data {store.id}=FOLDER")
                found.inputs.append(_input(store, place, location))
        found.pretrained = self._pretrained()
        if self._manifest.pretrained and isinstance(reference := self._manifest.pretrained[1], ModelReference):
            found.model = f"{reference.name}@{reference.version}"
        if self._manifest.registers:
            found.notes.append(f"the results become no version of the model {self._manifest.registers!r}")
        self._results(found)
        return found

    def find_wheels(self) -> list[DataInput]:
        return [
            _input(store, place, self._at(store, place, "wheels: bring them with the code (framework.wheels)"))
            for store, place in self._manifest.inputs
        ]

    def _data_folders(self) -> dict[str, Path]:
        ids = [store.id for store, _ in self._manifest.inputs]
        given = dict(self._request.data)
        if "" in given:
            if len(ids) != 1:
                what = f"training data in {', '.join(ids)}" if ids else "no training_data"
                raise RunError(f"--data {given['']}: the manifest has {what}; write --data ID=FOLDER")
            given[ids[0]] = given.pop("")
        for name, folder in given.items():
            if name not in ids:
                accepted = ", ".join(ids) or "none has any"
                raise RunError(
                    f"--data {name}: no data store of the manifest with training_data has this id: {accepted}"
                )
            _check_folder(f"--data {name}", folder)
        return given

    def _pretrained(self) -> S3Location | Path | None:
        found = self._manifest.pretrained
        if self._request.pretrained is not None:
            if found is None:
                raise RunError("--pretrained: the manifest has no pretrained_model")
            _check_folder("--pretrained", self._request.pretrained)
            return self._request.pretrained
        if found is None:
            return None
        store, place = found
        if not isinstance(place, Place):
            raise RunError(
                f"the model {place.name}@{place.version} is kept in a server's registry: download it "
                f"(`weft models download`) and give its folder with --pretrained FOLDER"
            )
        return self._at(store, place, "pretrained_model: give a folder instead with --pretrained FOLDER")

    def _results(self, found: Stores) -> None:
        named = self._manifest.results_place
        if self._request.results is not None or named is None:
            return
        store, place = named
        if store.mount is not None or (store.datastore is not None and store.datastore not in self._request.secrets):
            what = f"data store {store.datastore!r} is a server's" if store.datastore else "a mount is the cluster's"
            found.notes.append(f"results stay here, in the run's folder: {what}")
            return
        found.results = self._at(store, place, "training_results: give a folder instead with --results FOLDER")

    def _at(self, store: DataStore, place: Place, instead: str) -> S3Location:
        if store.id not in self._opened:
            self._opened[store.id] = self._open(store, instead)
        return self._opened[store.id].model_copy(update={"container": place.container, "prefix": place.prefix})

    def _open(self, store: DataStore, instead: str) -> S3Location:
        """The store without a container."""
        if store.mount is not None:
            raise RunError(f"data store {store.id!r} mounts {store.mount.path} of a cluster's machines: {instead}")
        if store.datastore is not None:
            return self._kept(store.datastore, f"data store {store.id!r}: {instead}")
        credentials = self._credentials[store.id]
        assert store.connection is not None
        return _location(store.connection.auth_url, store.connection.region, credentials)

    def _kept(self, name: str, instead: str) -> S3Location:
        """A data store that the manifest names and a server keeps."""
        if name not in self._request.secrets:
            raise RunError(
                f"{instead}. (Its connection {name!r} is kept on a server, and this run has none; with --secret {name} "
                "it is taken from AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION)"
            )
        text = self._request.secrets[name]
        if text is not None:
            try:
                kept = json.loads(text)
                credentials = Credentials(
                    kept["user_name"], kept["password"], kept.get("session_token"), kept.get("ca")
                )
                return _location(kept["endpoint"], kept.get("region"), credentials)
            except (ValueError, KeyError, TypeError):
                raise RunError(
                    f'--secret {name}: expected the connection of a data store: {{"endpoint": …, "user_name": …, '
                    f'"password": …, "region": …}}'
                ) from None
        needed = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        missing = [variable for variable in needed if not self._environment.get(variable)]
        if missing:
            raise RunError(f"--secret {name}: {' and '.join(missing)} must be set in the environment")
        endpoint, user, password = (self._environment[variable] for variable in needed)
        region = self._environment.get("AWS_REGION") or self._environment.get("AWS_DEFAULT_REGION")
        return _location(endpoint, region, Credentials(user, password, self._environment.get("AWS_SESSION_TOKEN")))


def _input(store: DataStore, place: TrainingData, location: S3Location) -> DataInput:
    how = place.model_dump(include=set(DataInput.model_fields))  # mode, and whatever else both know
    return DataInput(id=store.id, location=location, **how)


def _location(endpoint: str, region: str | None, credentials: Credentials) -> S3Location:
    return S3Location(
        endpoint=endpoint.rstrip("/"),
        region=region,
        access_key=credentials.user_name,
        secret_key=credentials.password,
        session_token=credentials.session_token,
        ca=credentials.ca,
        container="",
    )


def _check_folder(option: str, folder: Path) -> None:
    if not folder.is_dir():
        raise RunError(f"{option}: there is no folder {folder}")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise RunError(f"{option}: {folder} can't be read")
