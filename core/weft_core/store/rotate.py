"""Re-encrypt every stored secret under the first of ``secret_keys``: ``python -m weft_core.store.rotate``.

To rotate: put a new key first (``python -m weft_core.secrets`` prints one), restart the services, run this, then drop
the old key and restart again. Safe to repeat, and while the services run.
"""

from __future__ import annotations

import contextlib
import json
import sys

from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from weft_core.secrets import SecretBox, SecretsUnreadable
from weft_core.settings import load_settings
from weft_core.store.database import Database
from weft_core.store.models import Attempt, IdempotencyKey, ScheduleRow, Secret, SigningKey, SweepRow


def rotate(database: Database, box: SecretBox) -> int:
    """Re-encrypt all secrets, the tokens of attempts that are still open, signing keys, and the credentials
    of sweeps and schedules; returns how many.

    Raises:
        SecretsUnreadable: a secret is under none of the keys; nothing has been changed.
    """
    with database.transaction() as session:
        secrets = session.scalars(select(Secret).with_for_update()).all()
        attempts = session.scalars(select(Attempt).where(Attempt.ended_at.is_(None)).with_for_update()).all()
        for secret in secrets:
            secret.ciphertext = box.rotate(secret.ciphertext)
        for attempt in attempts:
            attempt.token_ciphertext = box.rotate(attempt.token_ciphertext)
        keys = session.scalars(select(SigningKey).with_for_update()).all()
        for key in keys:
            key.private_ciphertext = box.rotate(key.private_ciphertext)
        kept = [
            *session.scalars(select(SweepRow).where(SweepRow.credentials.is_not(None)).with_for_update()),
            *session.scalars(select(ScheduleRow).where(ScheduleRow.credentials.is_not(None)).with_for_update()),
        ]
        for row in kept:
            row.credentials = box.rotate(row.credentials or b"")
        _rotate_answers(session, box)
        return len(secrets) + len(attempts) + len(keys) + len(kept)


def _rotate_answers(session: Session, box: SecretBox) -> None:
    """Answers that are kept for a day in case that a request is repeated; one of them has a new token in it."""
    kept = select(IdempotencyKey).where(IdempotencyKey.resource_id.contains('"sealed"')).with_for_update()
    for row in session.scalars(kept):
        answer = json.loads(row.resource_id)
        # An answer that nobody can read any more blocks no secret, and is gone tomorrow.
        with contextlib.suppress(SecretsUnreadable):
            row.resource_id = json.dumps({**answer, "sealed": box.rotate(answer["sealed"].encode()).decode()})


def main() -> int:
    try:
        settings = load_settings()
        box = SecretBox(settings.secret_keys)
    except (ValidationError, ValueError) as error:
        print(f"settings: {error}", file=sys.stderr)
        return 2
    database = Database(settings.database_url.get_secret_value())
    try:
        print(f"{rotate(database, box)} secrets are under the first key now")
    except SecretsUnreadable as error:
        print(error, file=sys.stderr)
        return 1
    except OperationalError as error:
        print(f"can't reach Postgres: {error.orig}", file=sys.stderr)
        return 1
    finally:
        database.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
