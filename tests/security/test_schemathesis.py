"""schemathesis, with all its phases and checks, against the API on real servers: it finds nothing.

``schemathesis.toml``, beside this file, lists the exceptions with their reasons.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import update
from tests.api.conftest import HELLO, Api
from tests.servers import Servers

from weft_core.settings import IdentitySettings, Settings
from weft_core.store.models import User

_CONFIG = Path(__file__).parent / "schemathesis.toml"
_MANY = 1_000_000
"""Requests a minute. The limits have tests of their own."""


@pytest.fixture(scope="module")
def api(api_settings: Settings, servers: Servers) -> Iterator[Api]:
    limits = api_settings.limits.model_copy(
        update={"requests_per_minute": _MANY, "requests_burst": _MANY, "learner_requests_per_minute": _MANY}
    )
    identity = IdentitySettings(issuer="https://weft.example.com")
    with servers.database_url() as url:
        own = {"limits": limits, "identity": identity, "database_url": SecretStr(url)}
        running = Api(api_settings.model_copy(update=own))
        yield running
        running.stop()


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_nothing_is_found(api: Api, tmp_path: Path) -> None:
    ann, bob = api.person(), api.person()
    with api.context.database.transaction() as session:
        session.execute(update(User).where(User.id == ann.user_id).values(is_admin=True))
    ended = ann.submit()["id"]
    api.set_state(ended, "HALTED")
    auth = [
        {"name": name, "fixedHeaders": [{"name": "Authorization", "value": f"Bearer {person.token}"}]}
        for name, person in (("ann", ann), ("bob", bob))
    ]
    (tmp_path / "auth.json").write_text(json.dumps({"auth": auth}))
    # Few variables: before each request, requests looks through all of them for proxies.
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ},
        "WEFT_AUTH": str(tmp_path / "auth.json"),
        "WEFT_ENDED_JOB": ended,
        "WEFT_HOOKS": str(_CONFIG.with_name("schemathesis_hooks.py")),
        "WEFT_LEARNER": api.attempt(ann.submit(HELLO + "identity: {audience: weft}")["id"]).token,
    }
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        "--config-file",
        str(_CONFIG),
        "run",
        "--no-color",
        f"{api.url}/openapi.json",
    ]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for phase in ("Examples", "Coverage", "Fuzzing", "Stateful"):
        assert f"✅ {phase}" in done.stdout, done.stdout
