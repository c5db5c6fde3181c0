"""The settings of an installation in which nothing is set."""

from __future__ import annotations

from typing import Any

from cryptography.fernet import Fernet
from pydantic import SecretStr
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from weft_core.settings import Settings


class _UnsetSettings(Settings):
    """Settings that read neither ``weft.toml`` nor the environment in which the references are generated."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def unset_settings(**given: Any) -> Settings:
    """The defaults, with addresses at which nobody listens: nothing is ever connected to."""
    nowhere: dict[str, Any] = {
        "database_url": SecretStr("postgresql://nobody@127.0.0.1:1/none"),
        "redis_url": SecretStr("redis://127.0.0.1:1"),
        "secret_keys": [SecretStr(Fernet.generate_key().decode())],
    }
    return _UnsetSettings(**(nowhere | given))
