"""The URL of the database in the settings, as SQLAlchemy and libpq take it.

``pgbouncer=true`` among its parameters is for Weft: the URL leads to a pooler that gives each transaction another
connection, where a prepared statement of the last transaction may not exist.
"""

from __future__ import annotations

_POOLED = "pgbouncer=true"
_DIRECT = "pgbouncer=false"


def check(url: str) -> None:
    """Raise ValueError, without the URL, which may hold a password, if ``pgbouncer`` has another value."""
    for parameter in _parameters(url):
        if parameter.partition("=")[0] == "pgbouncer" and parameter not in (_POOLED, _DIRECT):
            raise ValueError(f"{parameter!r}: expected {_POOLED} or {_DIRECT}")


def is_pooled(url: str) -> bool:
    """Whether it leads to a pooler."""
    return _POOLED in _parameters(url)


def for_sqlalchemy(url: str) -> str:
    """``postgresql+psycopg://…``."""
    return _plain(url).replace("postgresql://", "postgresql+psycopg://", 1)


def for_libpq(url: str) -> str:
    """``postgresql://…``."""
    return _plain(url).replace("postgresql+psycopg://", "postgresql://", 1)


def _parameters(url: str) -> list[str]:
    return url.partition("?")[2].split("&")


def _plain(url: str) -> str:
    kept = [parameter for parameter in _parameters(url) if parameter and parameter not in (_POOLED, _DIRECT)]
    return url.partition("?")[0] + ("?" + "&".join(kept) if kept else "")
