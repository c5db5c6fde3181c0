"""Alembic's entry point; run through ``python -m weft_core.store.migrate``, which hands over the connection."""

from alembic import context

from weft_core.store.models import Base

connection = context.config.attributes["connection"]
# Each migration has a transaction of its own, so that one can build indexes outside it, while other processes go on.
context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    compare_server_default=True,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
