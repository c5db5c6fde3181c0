"""Short commands start quickly because they import little."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.cli.double import Double, as_json, job, jobs_page

# Each of these takes 10 to 100 ms to import. httpx._main is httpx's own command line, which brings click and Pygments.
NEVER = {"asyncio", "click", "httpx._main", "pathspec", "pydantic", "pygments", "typer.rich_utils", "yaml"}
_SCRIPT = """
import sys
from weft.main import run
try:
    run()
except SystemExit as end:
    assert not end.code, end.code
import json
print(json.dumps([name for name, module in sys.modules.items() if module is not None]), file=sys.stderr)
"""


def imported(double: Double, folder: Path, *arguments: str) -> set[str]:
    """The modules that the command ``weft`` loads, in a process of its own."""
    mine = {"WEFT_URL": double.url, "WEFT_TOKEN": "weft_u_test", "WEFT_PROFILE_FILE": str(folder / "config.toml")}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, *arguments], env=os.environ | mine, capture_output=True, text=True, check=True
    )
    assert done.stdout
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_version_imports_neither_tables_nor_the_library(double: Double, tmp_path: Path) -> None:
    double.on("GET", "/healthz", as_json({"version": "1"}))
    loaded = imported(double, tmp_path, "version")
    assert "httpx" in loaded  # it did ask the server
    assert not loaded & (NEVER | {"rich.console", "weft.client", "weft.models"})


def test_list_imports_what_a_table_needs(double: Double, tmp_path: Path) -> None:
    double.on("GET", "jobs", jobs_page(job()))
    loaded = imported(double, tmp_path, "list")
    assert {"rich.table", "weft.client"} <= loaded
    assert not loaded & NEVER
