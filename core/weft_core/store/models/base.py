"""The base of all tables."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import DateTime, ForeignKey, MetaData, Text, func
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

# Constraint names must be stable, as migrations refer to them.
_NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=_NAMING)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own interface
        str: Text,
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB,
        list[str]: JSONB,
        list[Any]: JSONB,
    }


def one_of(column: str, values: type) -> str:
    """A check that ``column`` is one of the members of an enumeration."""
    return f"{column} in ({', '.join(repr(str(v)) for v in values)})"  # type: ignore[attr-defined]


def created() -> Mapped[datetime]:
    """When the row was made, by the database's clock."""
    return mapped_column(server_default=func.now())


def project(primary_key: bool = False) -> Mapped[str]:
    """The tenant whose row it is."""
    return mapped_column(ForeignKey("projects.id", ondelete="CASCADE"), primary_key=primary_key)
