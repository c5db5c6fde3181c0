"""The store: SQLAlchemy models, sessions, and the one tenant-scoped door to them."""
