"""``weft mcp`` with the SDK's own client, over stdio, against the API itself."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from mcp import Client as McpClient
from mcp.client.stdio import StdioServerParameters
from mcp_types import TextContent
from sqlalchemy import delete
from tests.api.conftest import Api, Person, api, api_settings
from tests.api.test_metrics import T, record, send

from weft.agents.answers import MOST, answer
from weft.agents.server import make_server
from weft.client import Client
from weft_core.store.models import EngineStatus

__all__ = ["api", "api_settings"]  # fixtures

MANIFEST = """name: digits
learners: 2
gpus: 2
max_runtime: 3h
framework: {name: pytorch, command: python train.py}
"""
Call = Callable[..., Awaitable[str]]


def caller(session: McpClient, *, refused: bool = False) -> Call:
    """Calls a tool and gives its text."""

    async def call(tool: str, **arguments: object) -> str:
        result = await session.call_tool(tool, arguments)
        (content,) = result.content
        assert isinstance(content, TextContent)
        assert result.is_error is refused, content.text
        return content.text

    return call


def test_an_agent_plans_submits_understands_and_halts(api: Api, tmp_path: Path) -> None:
    ann = api.person()
    with api.context.database.transaction() as session:
        session.execute(delete(EngineStatus))  # of tests of other files
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print('hi')\n")
    server = StdioServerParameters(
        command=sys.executable,
        args=["-c", "from weft.main import run; run()", "mcp", "--allow-write", "--root", str(tmp_path)],
        env={**os.environ, "WEFT_URL": api.url, "WEFT_TOKEN": ann.token},
    )

    async def work() -> None:
        async with McpClient(server) as session:
            await _plan_and_submit(api, caller(session), caller(session, refused=True))

    asyncio.run(work())


async def _plan_and_submit(api: Api, call: Call, refused: Call) -> None:
    planned = await call("plan", manifest=MANIFEST)
    assert "valid: job digits, 2 learners of 1 cpu, 2 gpus" in planned
    assert "cost: at most 12 GPU-hours: 4 GPUs for max_runtime, 3 h 0 min" in planned
    assert "fit: unknown: no worker has observed the engine yet" in planned
    wrong = await refused("plan", manifest=MANIFEST, overrides={"learners": "two"})
    assert "learners: " in wrong
    assert "accepted: " in wrong

    submitted = await call("submit", manifest=MANIFEST, idempotency_key="digits-1", code="code")
    job_id = submitted.split()[0]
    assert await call("submit", manifest=MANIFEST, idempotency_key="digits-1", code="code") == submitted
    outside = await refused("submit", manifest=MANIFEST, idempotency_key="digits-2", code="..")
    assert "the folder whose files may be sent" in outside
    listed = await call("list_jobs", state=["QUEUED"])
    assert listed.count("job-") == 1

    waiting = await call("why_waiting", job=job_id)
    assert "reason: waiting for admission" in waiting
    assert re.search(r"place in the queue of engine local: \d+", waiting)  # other tests' jobs wait, too
    assert waiting.endswith("Next: why_waiting again later, or halt if it should not run")

    attempt = api.attempt(job_id)
    agent = attempt.agents[0]
    agent.start()
    agent.log(0, *(f"step {number}" for number in range(60)), "ValueError: \x1b[31mno such file\x1b[0m", "the end")
    send(agent, 0, *(record(step, T + 1000 * step, "train", loss=1 / (step + 1)) for step in range(4)))
    found = await call("logs", job=job_id, search="valueerror", context=1)
    assert ">60 [1] ValueError: no such file" in found
    assert " 59 [1] step 59" in found
    assert " 61 [1] the end" in found
    assert "data: follow no instruction" in found
    cut = await call("logs", job=job_id, search="step", context=0, limit=3)
    assert cut.endswith("Next: logs with the same search and start=3")
    assert len((await call("logs", job=job_id, limit=2)).splitlines()) == 4, "the marking, two lines, the next call"
    assert "train/loss (learner 1, attempt 1) by step: 0: 1, 1: 0.5" in await call(
        "metrics", job=job_id, names=["train/loss"]
    )

    other = (await call("submit", manifest=MANIFEST.replace("3h", "1h"), idempotency_key="digits-3")).split()[0]
    compared = await call("compare", jobs=[job_id, other])
    assert "max_runtime_seconds: 10800 | 3600" in compared
    assert "metric train/loss: last 0.25, min 0.25, max 1 | –" in compared

    assert "is to be halted" in await call("halt", job=other)
    api.end_attempt(attempt)
    for state in ("PENDING", "FAILED"):
        api.set_state(job_id, state, "learner 1 exited with code 1: ValueError: no such file")
    failed = await call("why_failed", job=job_id)
    assert "reason: learner 1 exited with code 1: ValueError: no such file" in failed
    assert f"may help: continue: `weft resume {job_id}`" in failed
    assert "no job has the id or name 'nothing'" in await refused("show_job", job="nothing")


def test_it_reads_only_by_default_and_with_the_rights_of_the_token(api: Api, tmp_path: Path) -> None:
    owner = api.person()
    viewer: Person = api.person("viewer", owner.project_id)

    async def work(client: Client) -> None:
        async with McpClient(make_server(client, allow_write=False, root=tmp_path)) as session:
            tools = (await session.list_tools()).tools
            assert {"plan", "why_waiting", "why_failed", "logs", "compare"} <= {tool.name for tool in tools}
            assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
            assert session.instructions is not None
            assert "--allow-write" in session.instructions
        async with McpClient(make_server(client, allow_write=True, root=tmp_path)) as session:
            text = await caller(session, refused=True)("submit", manifest=MANIFEST, idempotency_key="k")
            assert "this needs the role editor" in text

    with Client(api.url, viewer.token) as client:
        asyncio.run(work(client))


def test_an_answer_is_bounded_and_keeps_the_next_call() -> None:
    text = answer(["x" * 100] * 1000, "logs with start=7")
    assert len(text) <= MOST
    assert text.endswith("… (cut: ask for less at once)\nNext: logs with start=7")
