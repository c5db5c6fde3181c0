"""Settings of an embedded installation: ``weft.toml`` in the home, and the servers that it leaves to ``weft up``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from weft_core.settings import Settings, load_settings
from weft_embedded.files import write_private
from weft_embedded.home import Home, HomeError
from weft_embedded.servers.seaweedfs import S3Identity

_TEMPLATE = """\
# Settings of Weft's services in this home. `weft up` wrote this file on its first start and never changes it.
# Every setting can also be an environment variable, which wins: WEFT_DATABASE_URL, WEFT_S3__ENDPOINT, …
# After a change: `weft down`, then `weft up`.

# Keys that encrypt secrets in the database; the first encrypts, all decrypt. Without them stored secrets are lost.
# `python -m weft_core.secrets` prints a new one.
secret_keys = ["{key}"]

# `weft up` runs PostgreSQL, Redis and an S3 store of its own. A URL here replaces its own server.
# database_url = "postgresql://weft:PASSWORD@db.example.org/weft"
# redis_url = "redis://redis.example.org:6379/0"

[s3]
# Administrator of the S3 store, which holds code, results and logs in the bucket `weft`.
access_key = "{access_key}"
secret_key = "{secret_key}"
# endpoint = "https://s3.eu-central-1.amazonaws.com"   # replaces the store of its own; with its access_key, secret_key
# region = "eu-central-1"
# bucket = "weft"

[api]
# host = "127.0.0.1"      # where API and S3 listen; another address of this machine opens both to everyone who reaches
#                         it, # without TLS; `weft up --host ADDRESS` port = 8080             # default: the port of the
#                         first start, in the file `port` beside; `weft up --port N` public_url =
#                         "http://weft.example.org:8080"

# [engines.local]         # the resources of this machine for learners; default: all
# type = "local"
# cpus = 4
# gpus = 0
# memory = 8589934592     # bytes
# host_mounts = ["/data"] # folders that jobs may read from and write to by mount_volume
"""


@dataclass(frozen=True)
class External:
    """Which servers somebody else runs."""

    postgres: bool
    redis: bool
    s3: bool


def create_config(home: Home) -> None:
    """Write ``weft.toml`` with fresh keys and credentials, unless there is one."""
    if not home.config.exists():
        from weft_core.secrets import generate_key  # only here: cryptography slows every other command down

        admin = S3Identity.generate("weft")
        text = _TEMPLATE.format(key=generate_key(), access_key=admin.access_key, secret_key=admin.secret_key)
        write_private(home.config, text)


def read_settings(home: Home) -> Settings:
    """The settings from the home's ``weft.toml`` and the environment.

    Raises:
        HomeError: a setting is wrong, or the file is no TOML.
    """
    os.environ["WEFT_CONFIG"] = str(home.config)
    os.environ["WEFT_HOME"] = str(home.path)
    try:
        settings = load_settings()
    except ValidationError as error:
        from weft_core.settings_problems import settings_problems  # only here, as it loads the manifest's parser

        problems = "; ".join(settings_problems(error))
        raise HomeError(f"wrong settings in {home.config} or the environment (WEFT_…): {problems}") from None
    except (ValueError, OSError) as error:
        raise HomeError(f"can't read {home.config}: {error}") from None
    if not settings.secret_keys:
        raise HomeError(f"{home.config} has no secret_keys: without them stored secrets can't be read")
    return settings


def external_servers(settings: Settings, ours: Mapping[str, str]) -> External:
    """A server whose URL is given, in the file or the environment, is not ours to run.

    Args:
        ours: the URLs that ``weft env`` prints, which a shell may have taken over; these are ours nonetheless.
    """
    given = {
        "postgres": settings.database_url.get_secret_value() if "database_url" in settings.model_fields_set else None,
        "redis": settings.redis_url.get_secret_value() if "redis_url" in settings.model_fields_set else None,
        "s3": settings.s3.endpoint if "endpoint" in settings.s3.model_fields_set else None,
    }
    return External(**{name: url is not None and url != ours[name] for name, url in given.items()})


def service_environment(home: Home, **settings: str | Path | int) -> dict[str, str]:
    """The environment of the services: the user's, the home's file, and ``settings`` as WEFT_… variables."""
    ours = {name: str(value) for name, value in settings.items()}
    return {**os.environ, "WEFT_CONFIG": str(home.config), "WEFT_HOME": str(home.path), **ours}
