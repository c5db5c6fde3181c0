"""The profiles of a job, in the installation's own store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby, islice
from typing import cast

from weft_api.access.auth import Principal
from weft_api.access.lookups import find_job
from weft_api.context import Context
from weft_api.http.problems import not_found
from weft_api.profiles.schemas import Kind, ProfileFile, ProfileList, ProfileView
from weft_core.objects import ObjectInfo, profiles_prefix

_MOST_LISTED = 10_000
_PATH = re.compile(
    r"(?P<id>\d{8}-\d{6}-[0-9a-f]{4})/learner-(?P<learner>\d{1,6})"
    r"/(?P<process>(rank|process)-\d{1,6})\.(?P<kind>trace|stacks|collectives)\.(json\.gz|txt)"
)


def list_profiles(context: Context, who: Principal, job_id: str) -> ProfileList:
    """Raises Problem not_found."""
    prefix = _prefix(context, who, job_id)
    stored = islice(context.objects.objects(prefix), _MOST_LISTED)
    paths = [(found, info) for info in stored if (found := _PATH.fullmatch(info.key.removeprefix(prefix)))]
    profiles = []
    for name, group in groupby(paths, key=lambda entry: entry[0]["id"]):
        entries = list(group)
        files = [_file(found, info) for found, info in entries]
        profiles.append(ProfileView(id=name, stored=max(info.modified for _, info in entries), files=files))
    return ProfileList(profiles=sorted(profiles, key=lambda profile: profile.id, reverse=True))


def _file(found: re.Match[str], info: ObjectInfo) -> ProfileFile:
    return ProfileFile(
        path=found[0],
        learner=int(found["learner"]),
        process=found["process"],
        kind=cast(Kind, found["kind"]),
        size=info.size,
    )


def read_profile(context: Context, who: Principal, job_id: str, path: str) -> tuple[ObjectInfo, Iterator[bytes]]:
    """A file of a profile, in pieces. Raises Problem not_found."""
    prefix = _prefix(context, who, job_id)
    info = context.objects.head(prefix + path) if _PATH.fullmatch(path) else None
    if info is None:
        raise not_found("file", path[:200] if path.isprintable() else "?")
    return info, context.objects.get_stream(info.key)


def _prefix(context: Context, who: Principal, job_id: str) -> str:
    with context.database.transaction() as session:
        job = find_job(who.scope(session), job_id)
        return profiles_prefix(job.project_id, job.id)
