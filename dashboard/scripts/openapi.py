"""Write the API's OpenAPI document to .cache/openapi.json, from which the types of src/api/schema.d.ts are made."""

from __future__ import annotations

import json
from pathlib import Path

from cryptography.fernet import Fernet
from pydantic import SecretStr

from weft_api.app import create_app
from weft_core.settings import S3Settings, Settings

# Nothing of this is connected to: the document only needs the routes.
settings = Settings(
    database_url=SecretStr("postgresql://nobody@127.0.0.1:1/none"),
    redis_url=SecretStr("redis://127.0.0.1:1"),
    secret_keys=[SecretStr(Fernet.generate_key().decode())],
    s3=S3Settings(endpoint="http://127.0.0.1:1", access_key="none", secret_key=SecretStr("none"), bucket="none"),
)
target = Path(__file__).parent.parent / ".cache/openapi.json"
target.parent.mkdir(exist_ok=True)
document = json.dumps(create_app(settings).openapi(), indent=1)
if not target.exists() or target.read_text() != document:
    target.write_text(document)
