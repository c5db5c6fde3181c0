"""The API under attack runs on real servers, as in tests/api."""

from tests.api.conftest import ann, api, api_settings, bob

__all__ = ["ann", "api", "api_settings", "bob"]
