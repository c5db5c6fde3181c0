"""FfDL's ``mount_volume``: the folders of its machine that an engine gives to jobs, and their limits."""

from __future__ import annotations

from pathlib import PurePosixPath

from weft_api.http.problems import FieldProblem
from weft_core.engine_settings import LocalSettings
from weft_core.manifest import DataStore, MountConnection, TrainingData
from weft_core.settings import Settings

_INSTEAD = "an S3 store (`weft data put` brings a folder there)"


def mount_problems(
    store: DataStore, mount: MountConnection, path: str, engine: str, settings: Settings
) -> list[FieldProblem]:
    """Why no learner on ``engine`` could use this data store of the manifest, which is at ``path`` there."""
    section = settings.engines[engine]
    if not isinstance(section, LocalSettings):
        message = f"a folder of one machine is for engines of type local, and {engine!r} is of type {section.type}"
        return [FieldProblem(path=f"{path}.type", message=message, found="mount_volume", accepted=_INSTEAD)]
    found = []
    roots = section.host_mounts
    if not any(PurePosixPath(mount.path).is_relative_to(root) for root in roots):
        offered = f"a folder in {' or '.join(map(str, roots))}; " if roots else ""
        message = (
            f"engine {engine!r} gives jobs no folder {mount.path} ([engines.{engine}] host_mounts in its settings)"
        )
        accepted = f"{offered}{_INSTEAD}"
        found.append(FieldProblem(path=f"{path}.connection.path", message=message, found=mount.path, accepted=accepted))
    if store.pretrained_model is not None:
        message = "a mount_volume has training_data and training_results only"
        found.append(FieldProblem(path=f"{path}.pretrained_model", message=message, accepted=_INSTEAD))
    data = store.training_data
    plain = TrainingData(container=data.container, prefix=data.prefix) if data else None
    if data != plain:
        message = "mode, shard and patterns are for S3 stores: of a folder DATA_DIR has all that is in it"
        found.append(FieldProblem(path=f"{path}.training_data", message=message, accepted="container and prefix"))
    return found
