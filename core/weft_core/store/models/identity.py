"""The installation as an issuer of identity tokens."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Mapped, mapped_column

from weft_core.store.models.base import Base, created


class SigningKey(Base):
    """A key that signs the identity tokens of learners (:mod:`weft_core.store.signing_keys`)."""

    __tablename__ = "signing_keys"
    id: Mapped[str] = mapped_column(primary_key=True)  # the kid
    public: Mapped[dict[str, Any]]  # a JWK
    private_ciphertext: Mapped[bytes]  # PEM
    created_at: Mapped[datetime] = created()
    signs_from: Mapped[datetime]
    signs_until: Mapped[datetime]
    published_until: Mapped[datetime]  # the last token that it has signed has expired by then
